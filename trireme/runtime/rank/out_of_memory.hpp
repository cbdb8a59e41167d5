#pragma once
// Recognizes that memory was refused, in whatever words: libtorch's allocators, CUDA's libraries, NCCL, Gloo, the
// standard library, and BLAS or OpenMP, which call exit(1).
#include <exception>
#include <functional>
#include <optional>
#include <string>

namespace trireme {

struct RefusedMemory {
  std::optional<std::int64_t> bytes{};  // unknown if the library does not say
  std::string by;                       // "the CPU allocator", "cuBLAS"
};

inline constexpr const char* kMemoryFix =
    "\n  fix: free memory on this host, or raise ulimit -v; a smaller model, batch or seq_len, or a narrower dtype";

/// What an exception says of memory; nullopt if it is about something else.
std::optional<RefusedMemory> refused_memory(const std::exception& e);

/// "27.0 MiB (28,319,744 bytes)", or "more memory".
std::string amount_text(const RefusedMemory& refused);

/// While in scope, exit(1) by a library ends the process with ExitCode::out_of_memory, after printing
/// "error: " + text(). One per process at a time.
class LibraryExit {
 public:
  explicit LibraryExit(std::function<std::string()> text);
  ~LibraryExit();
  LibraryExit(const LibraryExit&) = delete;
  LibraryExit& operator=(const LibraryExit&) = delete;
};

/// Within a handler: throws what is handled, as an OutOfMemory if it says that memory was refused.
[[noreturn]] void rethrow_refused_memory();
/// For a LibraryExit: memory or a thread was refused to a library.
std::string refused_library_text();

/// Runs `body`: memory that is refused in it is an OutOfMemory, also where a library ends the process for it.
template <class F>
auto with_memory_errors(const F& body) {
  const LibraryExit library(refused_library_text);
  try {
    return body();
  } catch (...) {
    rethrow_refused_memory();
  }
}

}  // namespace trireme
