#pragma once
// A number of steps: whole, unless another trainer counts the phase in samples or as a share of the run.
#include <cmath>
#include <cstdint>
#include <ostream>

namespace trireme {

struct Steps {
  double count = 0;
  constexpr Steps(double steps = 0) : count(steps) {}  // a number of steps is written as a number
  constexpr operator double() const { return count; }

  bool is_whole() const { return std::floor(count) == count && std::abs(count) < 1e15; }
  friend std::ostream& operator<<(std::ostream& out, const Steps& steps) {
    return steps.is_whole() ? out << static_cast<std::int64_t>(steps.count) : out << steps.count;
  }
};

}  // namespace trireme
