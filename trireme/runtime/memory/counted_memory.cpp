#include "trireme/runtime/memory/counted_memory.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "trireme/base/error.hpp"
#include "trireme/runtime/memory/large_blocks.hpp"

namespace trireme {
namespace {

// Per process, as libtorch's allocator is.
std::atomic<std::int64_t> alive_bytes{0}, peak_bytes{0};
std::int64_t most_bytes = 0;  // the all-time peak; guarded like `sizes`
std::array<std::atomic<std::int64_t>, kMemoryKinds> alive_by_kind{};

struct Block {
  std::int64_t bytes;
  MemoryKind kind;
  bool is_large;  // from large_blocks(), else from libtorch's own allocator
};

// The sizes of live allocations: libtorch frees by address only (its raw deleter has no context). Never destroyed, like
// large_blocks(): tensors of static lifetime are freed last.
std::mutex& sizes_mutex = *new std::mutex;
std::unordered_map<void*, Block>& sizes = *new std::unordered_map<void*, Block>;
c10::DeleterFnPtr inner_deleter = nullptr;

c10::Allocator* allocator_before = nullptr;  // libtorch's own, while ours is installed

LargeBlocks& large_blocks() {
  static auto& blocks = *new LargeBlocks;
  return blocks;
}

/// Live and cached bytes together are at most a tenth above the all-time peak: a run needs its peak anyway, so nearly
/// everything it frees in between can be cached at no cost. 64 MiB are allowed in any case.
void limit_kept() {
  constexpr std::int64_t kAlwaysAllowed = std::int64_t{64} << 20;
  const std::int64_t together = std::max(most_bytes + most_bytes / 10, kAlwaysAllowed);
  const std::int64_t limit = allocator_before ? together - alive_bytes : 0;
  large_blocks().keep_at_most(static_cast<std::size_t>(std::max<std::int64_t>(0, limit)));
}

bool is_large(std::int64_t bytes) { return bytes >= static_cast<std::int64_t>(LargeBlocks::kLeast); }

void count_and_free(void* memory) {
  if (memory == nullptr) return;
  {
    const std::lock_guard lock(sizes_mutex);
    const auto it = sizes.find(memory);
    if (it != sizes.end()) {  // else it was allocated before we counted
      alive_bytes -= it->second.bytes;
      const Block block = it->second;
      alive_by_kind[static_cast<std::size_t>(block.kind)] -= block.bytes;
      sizes.erase(it);
      if (block.is_large) {
        large_blocks().free(memory, static_cast<std::size_t>(block.bytes));
        limit_kept();
        return;
      }
    }
  }
  inner_deleter(memory);
}

/// Wraps libtorch's own allocator, except for large blocks, and counts.
class Counting final : public c10::Allocator {
 public:
  explicit Counting(c10::Allocator& inner) : inner_(inner) {}
  c10::DataPtr allocate(std::size_t size) override {
    const std::lock_guard lock(sizes_mutex);
    const auto bytes = static_cast<std::int64_t>(size);
    Block block{.bytes = bytes, .kind = MemoryScope::current(), .is_large = is_large(bytes)};
    void* memory = nullptr;
    if (block.is_large) memory = large_blocks().allocate(size);
    if (memory == nullptr) {  // small; or out of memory, which libtorch's own reports best
      block.is_large = false;
      memory = inner_.allocate(size).release_context();  // is the memory itself, as raw_deleter() guarantees
    }
    if (memory != nullptr) {
      sizes[memory] = block;
      alive_by_kind[static_cast<std::size_t>(block.kind)] += bytes;
      const std::int64_t now = alive_bytes += bytes;
      if (now > peak_bytes) peak_bytes = now;
      most_bytes = std::max(most_bytes, now);
      if (block.is_large) limit_kept();
    }
    return {memory, memory, &count_and_free, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &count_and_free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { inner_.copy_data(to, from, bytes); }

 private:
  c10::Allocator& inner_;
};

}  // namespace

CountedMemory::CountedMemory() {
  require(allocator_before == nullptr, "memory is counted already");
  allocator_before = c10::GetCPUAllocator();
  inner_deleter = allocator_before->raw_deleter();
  require(inner_deleter != nullptr, "libtorch's CPU allocator does not free by address");
  static Counting counting(*allocator_before);  // tensors may outlive us, and their deleter is static
  alive_bytes = peak_bytes = 0;
  most_bytes = 0;
  for (auto& bytes : alive_by_kind) bytes = 0;
  c10::SetCPUAllocator(&counting, /*priority=*/255);
}

CountedMemory::~CountedMemory() {
  c10::SetCPUAllocator(allocator_before, /*priority=*/255);
  const std::lock_guard lock(sizes_mutex);
  allocator_before = nullptr;
  large_blocks().keep_at_most(0);
}

std::int64_t CountedMemory::alive() const { return alive_bytes; }
std::int64_t CountedMemory::alive(MemoryKind kind) const { return alive_by_kind[static_cast<std::size_t>(kind)]; }
std::int64_t CountedMemory::peak() const { return peak_bytes; }
void CountedMemory::forget_peak() const { peak_bytes = alive_bytes.load(); }

}  // namespace trireme
