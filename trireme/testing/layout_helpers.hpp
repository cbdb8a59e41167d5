#pragma once
// Words that the tests of this folder share.
#include <rapidcheck.h>

#include "trireme/testing/test_helpers.hpp"

namespace trireme {

/// Any number from `low` to `high`, both included, equally likely. (RapidCheck's own inRange keeps near `low`.)
inline int pick(int low, int high) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high + 1)); }

inline bool toss() { return pick(0, 1) == 1; }

}  // namespace trireme
