#include "trireme/verify/verify_differences.hpp"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <sstream>

#include "trireme/comm/group_text.hpp"

namespace trireme {
namespace {

/// NaN is larger than any number.
double larger_difference(double a, double b) { return std::isnan(a) || a > b ? a : b; }

}  // namespace

void Differences::add(const std::string& name, double max_abs, double relative) {
  TensorDifference& known = by_name_.try_emplace(name, TensorDifference{.name = name}).first->second;
  known.max_abs = larger_difference(known.max_abs, max_abs);
  known.relative = larger_difference(known.relative, relative);
}

/// A line for each: "relative max_abs name".
std::string Differences::lines() const {
  std::ostringstream out;
  out << std::hexfloat;
  for (const auto& [name, d] : by_name_) out << d.relative << " " << d.max_abs << " " << name << "\n";
  return out.str();
}

void Differences::add_lines(const std::string& lines) {
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    char* rest = nullptr;
    const double relative = std::strtod(line.c_str(), &rest), max_abs = std::strtod(rest, &rest);
    add(rest + 1, max_abs, relative);
  }
}

Differences Differences::of_all_ranks(World& world) const {
  std::string joined;
  for (const std::string& lines : gather_texts(world.control(), this->lines())) joined += lines;
  Differences all;
  all.add_lines(broadcast_text(world.control(), joined));
  return all;
}

std::vector<TensorDifference> Differences::in_order(const std::vector<std::string>& names, double allowed) const {
  std::vector<TensorDifference> out;
  for (const std::string& name : names) {
    const auto found = by_name_.find(name);
    const double infinite = std::numeric_limits<double>::infinity();
    out.push_back(found != by_name_.end() ? found->second
                                          : TensorDifference{.name = name, .max_abs = infinite, .relative = infinite});
    out.back().within = out.back().relative <= allowed;  // not if it is NaN
  }
  return out;
}

}  // namespace trireme
