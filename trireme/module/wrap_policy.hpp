#pragma once
// Which modules become units of their own when a module is sharded.
#include <functional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

namespace trireme {

/// A module that could be a unit: a Unit<M>, or a child of a torch::nn::Sequential.
struct UnitCandidate {
  const torch::nn::Module& module;
  std::string name;           // as in named_parameters(): "body.3"
  std::int64_t elements = 0;  // of its parameters, without those of the units inside it
};

/// Whether a candidate becomes a unit; if not, its parameters belong to the unit around it.
using WrapPolicy = std::function<bool(const UnitCandidate&)>;

/// A policy that names modules: one that names none that can be a unit is a ConfigError.
struct NamedUnits {
  std::function<bool(const torch::nn::Module& module, const std::string& name)> matches;
  bool operator()(const UnitCandidate& candidate) const { return matches(candidate.module, candidate.name); }
};

WrapPolicy wrap_always();  // the default of fully_shard()
WrapPolicy wrap_never();   // the default of fit()
/// Candidates with at least this many elements.
WrapPolicy wrap_by_size(std::int64_t elements);
/// Candidates of these names; a * stands for any characters.
WrapPolicy wrap_by_name(std::vector<std::string> patterns);
/// Candidates of these classes: wrap_by_type<torch::nn::LinearImpl, BlockImpl>().
template <class... Impl>
WrapPolicy wrap_by_type() {
  return NamedUnits{[](const torch::nn::Module& module, const std::string&) {
    return ((dynamic_cast<const Impl*>(&module) != nullptr) || ...);
  }};
}

}  // namespace trireme
