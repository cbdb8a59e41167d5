#pragma once
// optimizer.lr_factors: learning rates of parameters by name.
#include <string>
#include <vector>

namespace trireme::config {

struct LrFactor {
  std::string pattern;  // base/name_pattern.hpp
  double factor = 1;
};
/// Of "embedding 0.1"; ConfigError for anything else than a pattern and a number from 0 on.
LrFactor parse_lr_factor(const std::string& text);
/// Of the first that matches the parameter; 1 without one.
double lr_factor_of(const std::string& parameter, const std::vector<std::string>& lr_factors);

}  // namespace trireme::config
