#pragma once
// Elapsed time by the steady clock, which never jumps.
#include <chrono>
#include <cstdint>

namespace trireme {

/// Nanoseconds since an arbitrary moment, the same for all processes of a host.
inline std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Runs from its construction.
class Stopwatch {
 public:
  double seconds() const { return static_cast<double>(steady_ns() - begin_ns_) * 1e-9; }
  std::int64_t begin_ns() const { return begin_ns_; }

 private:
  std::int64_t begin_ns_ = steady_ns();
};

}  // namespace trireme
