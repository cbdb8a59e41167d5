#include "trireme/runtime/rank/out_of_memory.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include <c10/util/Exception.h>
#include <sys/resource.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"

namespace trireme {
namespace {

/// The words of each library. Some of them only have text: there is no type or code to ask for.
constexpr std::array<std::pair<std::string_view, const char*>, 8> kWords{{
    {"DefaultCPUAllocator: not enough memory", "the CPU allocator"},
    {"DefaultCPUAllocator: can't allocate memory", "the CPU allocator"},
    {"CUDA out of memory", "the CUDA allocator"},
    {"CUBLAS_STATUS_ALLOC_FAILED", "cuBLAS"},
    {"CUDNN_STATUS_ALLOC_FAILED", "cuDNN"},
    {"CUDA error: out of memory", "CUDA"},
    {"Cuda failure 2 'out of memory'", "NCCL"},
    {"Cannot allocate memory", "the system"},
}};

// A handler of exit() gets nothing but the status.
std::function<std::string()> exit_text;
std::atomic<bool> exit_is_watched = false;  // whether exit_text may be called

void on_process_exit(int status, void* /*unused*/) {
  if (!exit_is_watched.exchange(false) || status != 1) return;
  std::cerr << "error: " << exit_text() << std::endl;
  ::_exit(static_cast<int>(ExitCode::out_of_memory));
}

/// A thread that has no memory for its stack is refused with the same code as one too many.
bool memory_is_limited() {
  const auto is_limited = [](auto resource) {
    rlimit limit{};
    return ::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  };
  return is_limited(RLIMIT_AS) || is_limited(RLIMIT_DATA);
}

/// The number behind "tried to allocate ": "28319744 bytes", "2.50 GiB".
std::optional<std::int64_t> bytes_in(std::string_view words) {
  constexpr std::string_view kBefore = "ried to allocate ";
  const std::size_t found = words.find(kBefore);
  if (found == std::string_view::npos) return std::nullopt;
  const std::string rest(words.substr(found + kBefore.size(), 40));
  char* end = nullptr;
  double bytes = std::strtod(rest.c_str(), &end);
  for (const auto& [unit, factor] : {std::pair{" KiB", 0x1p10}, {" MiB", 0x1p20}, {" GiB", 0x1p30}})
    if (std::string_view(end).starts_with(unit)) bytes *= factor;
  return static_cast<std::int64_t>(bytes);
}

}  // namespace

std::optional<RefusedMemory> refused_memory(const std::exception& e) {
  if (dynamic_cast<const std::bad_alloc*>(&e) != nullptr) return RefusedMemory{.by = "the C++ library"};
  if (const auto* system = dynamic_cast<const std::system_error*>(&e)) {
    if (system->code().value() == ENOMEM) return RefusedMemory{.by = "the system"};
    if (system->code().value() == EAGAIN && memory_is_limited()) return RefusedMemory{.by = "the system for a thread"};
    return std::nullopt;
  }
  const auto* torch = dynamic_cast<const c10::Error*>(&e);
  const std::string words = torch != nullptr ? torch->what_without_backtrace() : e.what();
  for (const auto& [text, by] : kWords)
    if (words.find(text) != std::string::npos) return RefusedMemory{.bytes = bytes_in(words), .by = by};
  if (dynamic_cast<const c10::OutOfMemoryError*>(&e) != nullptr)
    return RefusedMemory{.bytes = bytes_in(words), .by = "libtorch"};
  return std::nullopt;
}

std::string amount_text(const RefusedMemory& refused) {
  if (!refused.bytes) return "more memory";
  return text(human_bytes(static_cast<double>(*refused.bytes)), " (", thousands(*refused.bytes), " bytes)");
}

LibraryExit::LibraryExit(std::function<std::string()> text) {
  static const int registered = ::on_exit(on_process_exit, nullptr);
  require(registered == 0, "on_exit is not possible");
  require(!exit_is_watched, "a process has one LibraryExit at a time");
  exit_text = std::move(text);
  exit_is_watched = true;
}

LibraryExit::~LibraryExit() { exit_is_watched = false; }

std::string refused_library_text() {
  return text("out of memory: memory or a thread for BLAS or OpenMP (its message is above)", kMemoryFix);
}

void rethrow_refused_memory() {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    if (const auto refused = refused_memory(e))
      throw OutOfMemory(text("out of memory: ", amount_text(*refused), " from ", refused->by, kMemoryFix));
    throw;
  }
}

}  // namespace trireme
