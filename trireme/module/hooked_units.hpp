#pragma once
// The units of a module: which of its parts are one, whose parameters each holds, and the hooks around their calls.
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/modules/container/any.h>

#include "trireme/module/module_tensors.hpp"
#include "trireme/module/unit.hpp"
#include "trireme/module/wrap_policy.hpp"

namespace trireme {

/// The units are the Unit<M>s and the children of torch::nn::Sequentials, and of modules that call theirs with hooks
/// (CallsChildren), that the policy chooses; and the root, which has what is left.
class HookedUnits {
 public:
  struct Part {
    std::string name;
    std::vector<NamedTensor> parameters;
  };
  /// Of the unit with this index.
  using HooksOf = std::function<std::shared_ptr<CallHooks>(std::size_t unit)>;

  /// Puts hooks around the calls of all units but the root. ConfigError if the policy names modules, and none of them
  /// can be a unit.
  HookedUnits(std::shared_ptr<torch::nn::Module> module, const WrapPolicy& policy, HooksOf hooks);
  HookedUnits(const HookedUnits&) = delete;
  HookedUnits& operator=(const HookedUnits&) = delete;

  /// [0] is the root.
  const std::vector<Part>& parts() const { return parts_; }
  void remove_hooks();

 private:
  std::int64_t choose(const torch::nn::Module& module, const std::string& name, bool is_called_by_parent,
                      const WrapPolicy& policy);
  void assign(torch::nn::Module& module, const std::string& name, std::size_t unit);
  std::size_t unit_of(const torch::nn::Module& module, const std::string& name);

  const std::shared_ptr<torch::nn::Module> module_;
  const HooksOf hooks_;
  std::vector<Part> parts_;
  std::set<const torch::nn::Module*> chosen_;
  std::string unseen_;  // a module that the policy names, and whose calls cannot be seen
  std::map<const torch::nn::Module*, std::size_t> index_;
  std::map<const c10::TensorImpl*, std::size_t> owner_;  // by parameter: its unit
  std::vector<torch::nn::AnyModule*> slots_;             // of Sequentials, that hold a HookedChild
  std::vector<AnyUnit*> hooked_;
  std::vector<std::pair<CallsChildren*, std::string>> children_;  // with hooks
};

}  // namespace trireme
