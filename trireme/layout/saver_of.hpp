#pragma once
// Which of several ranks with equal copies of a parameter saves its own: known to all without a word.
#include <string_view>

#include "trireme/base/fnv.hpp"

namespace trireme {

/// A hash spreads the parameters over the ranks.
template <class Ranks>
auto saver_of(std::string_view parameter, const Ranks& ranks) {
  return ranks[fnv1a(parameter) % ranks.size()];
}

}  // namespace trireme
