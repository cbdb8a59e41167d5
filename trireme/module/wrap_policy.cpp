#include "trireme/module/wrap_policy.hpp"

#include <algorithm>

#include <fnmatch.h>

namespace trireme {

WrapPolicy wrap_always() {
  return [](const UnitCandidate&) { return true; };
}

WrapPolicy wrap_never() {
  return [](const UnitCandidate&) { return false; };
}

WrapPolicy wrap_by_size(std::int64_t elements) {
  return [elements](const UnitCandidate& candidate) { return candidate.elements >= elements; };
}

WrapPolicy wrap_by_name(std::vector<std::string> patterns) {
  return NamedUnits{[patterns = std::move(patterns)](const torch::nn::Module&, const std::string& name) {
    return std::ranges::any_of(
        patterns, [&](const std::string& pattern) { return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0; });
  }};
}

}  // namespace trireme
