#include "trireme/runtime/counted_memory.hpp"

#include <atomic>
#include <mutex>
#include <unordered_map>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

// Of the process, as libtorch's allocator is.
std::atomic<std::int64_t> alive_bytes{0}, peak_bytes{0};
std::array<std::atomic<std::int64_t>, kMemoryKinds> alive_by_kind{};

struct Block {
  std::int64_t bytes;
  MemoryKind kind;
};

// The sizes of what is alive: libtorch frees by address alone (its kernels ask for memory in a form that has no room
// for more).
std::mutex sizes_mutex;
std::unordered_map<void*, Block> sizes;
c10::DeleterFnPtr inner_deleter = nullptr;

void count_and_free(void* memory) {
  if (memory == nullptr) return;
  {
    const std::lock_guard lock(sizes_mutex);
    const auto it = sizes.find(memory);
    if (it != sizes.end()) {  // else it was there before we counted
      alive_bytes -= it->second.bytes;
      alive_by_kind[static_cast<std::size_t>(it->second.kind)] -= it->second.bytes;
      sizes.erase(it);
    }
  }
  inner_deleter(memory);
}

/// libtorch's own allocator, with a count.
class Counting final : public c10::Allocator {
 public:
  explicit Counting(c10::Allocator& inner) : inner_(inner) {}
  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr block = inner_.allocate(bytes);
    const c10::Device device = block.device();
    void* const memory = block.release_context();  // which is the memory itself, as raw_deleter() promises
    if (memory != nullptr) {
      const std::lock_guard lock(sizes_mutex);
      const MemoryKind kind = MemoryScope::current();
      sizes[memory] = {static_cast<std::int64_t>(bytes), kind};
      alive_by_kind[static_cast<std::size_t>(kind)] += static_cast<std::int64_t>(bytes);
      const std::int64_t now = alive_bytes += static_cast<std::int64_t>(bytes);
      if (now > peak_bytes) peak_bytes = now;
    }
    return {memory, memory, &count_and_free, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &count_and_free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { inner_.copy_data(to, from, bytes); }

 private:
  c10::Allocator& inner_;
};

c10::Allocator* before = nullptr;

}  // namespace

CountedMemory::CountedMemory() {
  require(before == nullptr, "memory is counted already");
  before = c10::GetCPUAllocator();
  inner_deleter = before->raw_deleter();
  require(inner_deleter != nullptr, "libtorch's CPU allocator does not free by address");
  static Counting counting(*before);  // tensors may outlive us, and their deleter does not know us
  alive_bytes = peak_bytes = 0;
  for (auto& bytes : alive_by_kind) bytes = 0;
  c10::SetCPUAllocator(&counting, /*priority=*/255);
}

CountedMemory::~CountedMemory() {
  c10::SetCPUAllocator(before, /*priority=*/255);
  before = nullptr;
}

std::int64_t CountedMemory::alive() const { return alive_bytes; }
std::int64_t CountedMemory::alive(MemoryKind kind) const { return alive_by_kind[static_cast<std::size_t>(kind)]; }
std::int64_t CountedMemory::peak() const { return peak_bytes; }
void CountedMemory::forget_peak() const { peak_bytes = alive_bytes.load(); }

}  // namespace trireme
