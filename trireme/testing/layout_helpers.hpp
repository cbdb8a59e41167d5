#pragma once
// Helpers for tests of layout/.
#include <rapidcheck.h>

#include "trireme/testing/test_helpers.hpp"

namespace trireme {

/// A uniform random number from `low` to `high`, inclusive. (RapidCheck's inRange prefers values near `low`.)
inline int pick(int low, int high) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high + 1)); }

inline bool toss() { return pick(0, 1) == 1; }

}  // namespace trireme
