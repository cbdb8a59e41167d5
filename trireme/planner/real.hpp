#pragma once
// Counts as numbers of formulas.
#include <cstdint>

namespace trireme::planner {

inline double real(std::int64_t value) { return static_cast<double>(value); }

}  // namespace trireme::planner
