#include "trireme/module/optimizer_states.hpp"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

namespace optim = torch::optim;

enum class Kind { adam, adamw, sgd };

Kind kind_of(const optim::Optimizer& optimizer) {
  if (dynamic_cast<const optim::AdamW*>(&optimizer)) return Kind::adamw;
  if (dynamic_cast<const optim::Adam*>(&optimizer)) return Kind::adam;
  if (dynamic_cast<const optim::SGD*>(&optimizer)) return Kind::sgd;
  throw ConfigError(
      "a checkpoint of an optimizer that is not torch's Adam, AdamW or SGD\n"
      "  fix: one of these; or save without the optimizer");
}

template <class State>
TensorState adam_state(const optim::OptimizerParamState& state) {
  const auto& s = static_cast<const State&>(state);
  TensorState out{{{"exp_avg", s.exp_avg()}, {"exp_avg_sq", s.exp_avg_sq()}}, s.step()};
  if (s.max_exp_avg_sq().defined()) out.tensors["max_exp_avg_sq"] = s.max_exp_avg_sq();
  return out;
}

template <class State>
std::unique_ptr<optim::OptimizerParamState> new_adam_state(const TensorState& state) {
  auto out = std::make_unique<State>();
  out->step(state.step.value_or(0));
  out->exp_avg(state.tensors.at("exp_avg"));
  out->exp_avg_sq(state.tensors.at("exp_avg_sq"));
  if (const auto most = state.tensors.find("max_exp_avg_sq"); most != state.tensors.end())
    out->max_exp_avg_sq(most->second);
  return out;
}

const optim::OptimizerOptions* options_of(const optim::Optimizer& optimizer, const at::Tensor& tensor) {
  for (const optim::OptimizerParamGroup& group : optimizer.param_groups())
    for (const at::Tensor& each : group.params())
      if (each.is_same(tensor)) return &group.options();
  return nullptr;
}

}  // namespace

std::string optimizer_name(const optim::Optimizer& optimizer) {
  switch (kind_of(optimizer)) {
    case Kind::adam: return "Adam";
    case Kind::adamw: return "AdamW";
    case Kind::sgd: break;
  }
  return "SGD";
}

std::optional<std::vector<std::string>> state_names(const optim::Optimizer& optimizer, const at::Tensor& tensor) {
  const optim::OptimizerOptions* options = options_of(optimizer, tensor);
  if (options == nullptr) return std::nullopt;
  std::vector<std::string> names = all_state_names(optimizer);
  bool has_last = true;  // the last one is optional
  switch (kind_of(optimizer)) {
    case Kind::adam: has_last = static_cast<const optim::AdamOptions*>(options)->amsgrad(); break;
    case Kind::adamw: has_last = static_cast<const optim::AdamWOptions*>(options)->amsgrad(); break;
    case Kind::sgd: has_last = static_cast<const optim::SGDOptions*>(options)->momentum() != 0; break;
  }
  if (!has_last) names.pop_back();
  return names;
}

std::vector<std::string> all_state_names(const optim::Optimizer& optimizer) {
  if (kind_of(optimizer) == Kind::sgd) return {"momentum_buffer"};
  return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
}

std::optional<TensorState> get_state(const optim::Optimizer& optimizer, const at::Tensor& tensor) {
  const auto found = optimizer.state().find(tensor.unsafeGetTensorImpl());
  if (found == optimizer.state().end()) return std::nullopt;
  switch (kind_of(optimizer)) {
    case Kind::adam: return adam_state<optim::AdamParamState>(*found->second);
    case Kind::adamw: return adam_state<optim::AdamWParamState>(*found->second);
    case Kind::sgd: break;
  }
  const at::Tensor& momentum = static_cast<const optim::SGDParamState&>(*found->second).momentum_buffer();
  if (!momentum.defined()) return std::nullopt;
  return TensorState{{{"momentum_buffer", momentum}}, std::nullopt};
}

void set_state(optim::Optimizer& optimizer, const at::Tensor& tensor, const std::optional<TensorState>& state) {
  if (options_of(optimizer, tensor) == nullptr) return;
  void* const key = tensor.unsafeGetTensorImpl();
  if (!state) {
    optimizer.state().erase(key);
    return;
  }
  std::unique_ptr<optim::OptimizerParamState>& own = optimizer.state()[key];
  switch (kind_of(optimizer)) {
    case Kind::adam: own = new_adam_state<optim::AdamParamState>(*state); return;
    case Kind::adamw: own = new_adam_state<optim::AdamWParamState>(*state); return;
    case Kind::sgd: break;
  }
  auto sgd = std::make_unique<optim::SGDParamState>();
  sgd->momentum_buffer(state->tensors.at("momentum_buffer"));
  own = std::move(sgd);
}

}  // namespace trireme
