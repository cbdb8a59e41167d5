#pragma once
// The differences between a layout and its reference, by the name of a parameter or module.
#include <map>
#include <string>
#include <vector>

#include "trireme/comm/world.hpp"
#include "trireme/verify/verify.hpp"

namespace trireme {

/// The largest differences by name.
class Differences {
 public:
  void add(const std::string& name, double max_abs, double relative);
  /// Collective: those of all ranks, on each.
  Differences of_all_ranks(World& world) const;
  /// In the order of `names`; what no rank has told of differs infinitely.
  std::vector<TensorDifference> in_order(const std::vector<std::string>& names, double allowed) const;

 private:
  std::string lines() const;
  void add_lines(const std::string& lines);

  std::map<std::string, TensorDifference> by_name_;
};

}  // namespace trireme
