#include "trireme/module/hooked_units.hpp"

#include <torch/nn/modules/container/sequential.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

/// Stands for a child in the list of a Sequential; the registered child stays as it is.
class HookedChild : public torch::nn::Module {
 public:
  HookedChild(torch::nn::AnyModule child, std::string name, std::shared_ptr<CallHooks> hooks)
      : child_(std::move(child)), name_(std::move(name)), hooks_(std::move(hooks)) {}
  at::Tensor forward(const at::Tensor& x) {
    return call_in_unit(hooks_, [this](const at::Tensor& in) { return call(in); }, x);
  }
  std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>&) const override {
    throw ConfigError(text("fully_shard: unit ", name_, " cannot be cloned: its values are on all ranks\n",
                           "  fix: release() the sharded model first; or state(), for the values"));
  }
  const torch::nn::AnyModule& child() const { return child_; }

 private:
  at::Tensor call(const at::Tensor& x) {
    try {
      return child_.forward<at::Tensor>(x);
    } catch (const c10::Error& error) {
      const std::string what = error.what_without_backtrace();
      for (const char* of_any_module : {"forward() method expects", "Expected argument #", "Attempted to cast"})
        require<ConfigError>(what.find(of_any_module) == std::string::npos, "fully_shard: unit ", name_,
                             ", a child of a Sequential: ", what,
                             "\n  fix: a child that is a unit must map one tensor ",
                             "to one tensor; leave this one out by the policy");
      throw;
    }
  }

  torch::nn::AnyModule child_;
  const std::string name_;
  const std::shared_ptr<CallHooks> hooks_;
};

std::string below(const std::string& name, const std::string& child) {
  return name.empty() ? child : name + "." + child;
}

}  // namespace

HookedUnits::HookedUnits(std::shared_ptr<torch::nn::Module> module, const WrapPolicy& policy, HooksOf hooks)
    : module_(std::move(module)), hooks_(std::move(hooks)), parts_(1) {
  choose(*module_, "", false, policy);
  require<ConfigError>(
      !policy.target<NamedUnits>() || !chosen_.empty(),
      "fully_shard: the wrap policy names no module that can be a unit",
      unseen_.empty() ? std::string() : text("; calls of ", unseen_, " cannot be seen"),
      "\n  fix: units are children of a torch::nn::Sequential, and modules made as Unit<M>: ",
      "Unit<Block> block, or list->push_back(Unit<Block>(...)) and list[i]->as<Unit<Block>>()->forward(x)");
  assign(*module_, "", 0);
  for (const NamedTensor& parameter : distinct_parameters(*module_))
    parts_[owner_.at(parameter.value.unsafeGetTensorImpl())].parameters.push_back(parameter);
}

void HookedUnits::remove_hooks() {
  for (torch::nn::AnyModule* slot : slots_) *slot = torch::nn::AnyModule(slot->get<HookedChild>().child());
  for (AnyUnit* unit : hooked_) unit->hooks.reset();
  for (const auto& [parent, child] : children_) parent->set_child_hooks(child, nullptr);
}

/// The elements of a module that belong to the unit around it.
std::int64_t HookedUnits::choose(const torch::nn::Module& module, const std::string& name, bool is_called_by_parent,
                                 const WrapPolicy& policy) {
  std::int64_t elements = 0;
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) elements += parameter.value().numel();
  const bool calls_children = dynamic_cast<const torch::nn::SequentialImpl*>(&module) != nullptr ||
                              dynamic_cast<const CallsChildren*>(&module) != nullptr;
  for (const auto& child : module.named_children())
    elements += choose(*child.value(), below(name, child.key()), calls_children, policy);
  const bool candidate = is_called_by_parent || dynamic_cast<const AnyUnit*>(&module) != nullptr;
  if (elements == 0 || name.empty()) return elements;
  if (const auto* named = policy.target<NamedUnits>();
      !candidate && named && unseen_.empty() && named->matches(module, name))
    unseen_ = name;
  if (!candidate || !policy({module, name, elements})) return elements;
  chosen_.insert(&module);
  return 0;
}

void HookedUnits::assign(torch::nn::Module& module, const std::string& name, std::size_t unit) {
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
    const auto [place, is_new] = owner_.emplace(parameter.value().unsafeGetTensorImpl(), unit);
    // Used by two units: the root is gathered during both.
    if (!is_new && place->second != unit) place->second = 0;
  }
  auto* sequential = dynamic_cast<torch::nn::SequentialImpl*>(&module);
  auto* caller = dynamic_cast<CallsChildren*>(&module);
  std::size_t index = 0;
  for (const auto& child : module.named_children()) {
    const std::string its_name = below(name, child.key());
    torch::nn::AnyModule* slot = sequential ? &*(sequential->begin() + static_cast<std::ptrdiff_t>(index++)) : nullptr;
    std::size_t its_unit = unit;
    if (chosen_.contains(child.value().get())) {
      its_unit = unit_of(*child.value(), its_name);
      if (slot) {
        *slot = torch::nn::AnyModule(std::make_shared<HookedChild>(*slot, its_name, hooks_(its_unit)));
        slots_.push_back(slot);
      } else if (caller) {
        caller->set_child_hooks(child.key(), hooks_(its_unit));
        children_.emplace_back(caller, child.key());
      } else {
        // A child of a Sequential that is registered here, too, is called without hooks: it belongs to this unit.
        auto* own = dynamic_cast<AnyUnit*>(child.value().get());
        if (own) {
          own->hooks = hooks_(its_unit);
          hooked_.push_back(own);
        } else {
          its_unit = unit;
        }
      }
    }
    assign(*child.value(), its_name, its_unit);
  }
}

std::size_t HookedUnits::unit_of(const torch::nn::Module& module, const std::string& name) {
  const auto [place, is_new] = index_.emplace(&module, parts_.size());
  if (is_new) parts_.push_back({name, {}});
  return place->second;
}

}  // namespace trireme
