#include "trireme/module/optimizer_states.hpp"

#include <array>
#include <sstream>

#include <ATen/ops/full_like.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

namespace optim = torch::optim;
using ParamState = optim::OptimizerParamState;

/// An optimizer whose states are known by name.
struct Kind {
  const char* name;
  std::vector<std::string> states;  // that it can have, whatever its options
  bool (*is)(const optim::Optimizer&);
  bool (*has)(const optim::OptimizerOptions&, const std::string& state);  // with these options
  TensorState (*get)(const ParamState&);                                  // undefined: not there
  std::unique_ptr<ParamState> (*make)(const TensorState&);
  /// Of a tensor that was not updated yet; nullptr: none.
  std::unique_ptr<ParamState> (*make_first)(const optim::OptimizerOptions&, const at::Tensor&) = nullptr;
};

template <class T>
bool is_a(const optim::Optimizer& optimizer) {
  return dynamic_cast<const T*>(&optimizer) != nullptr;
}

at::Tensor tensor_of(const TensorState& state, const std::string& name) {
  const auto found = state.tensors.find(name);
  return found == state.tensors.end() ? at::Tensor() : found->second;
}

template <class Optimizer, class Options, class State>
Kind adam_kind(const char* name) {
  return {name,
          {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
          is_a<Optimizer>,
          [](const optim::OptimizerOptions& options, const std::string& state) {
            return state != "max_exp_avg_sq" || static_cast<const Options&>(options).amsgrad();
          },
          [](const ParamState& state) {
            const auto& s = static_cast<const State&>(state);
            return TensorState{
                {{"exp_avg", s.exp_avg()}, {"exp_avg_sq", s.exp_avg_sq()}, {"max_exp_avg_sq", s.max_exp_avg_sq()}},
                s.step()};
          },
          [](const TensorState& state) -> std::unique_ptr<ParamState> {
            auto out = std::make_unique<State>();
            out->step(state.step.value_or(0));
            out->exp_avg(tensor_of(state, "exp_avg"));
            out->exp_avg_sq(tensor_of(state, "exp_avg_sq"));
            out->max_exp_avg_sq(tensor_of(state, "max_exp_avg_sq"));
            return out;
          }};
}

Kind sgd_kind() {
  return {"SGD",
          {"momentum_buffer"},
          is_a<optim::SGD>,
          [](const optim::OptimizerOptions& options, const std::string&) {
            return static_cast<const optim::SGDOptions&>(options).momentum() != 0;
          },
          [](const ParamState& state) {
            return TensorState{{{"momentum_buffer", static_cast<const optim::SGDParamState&>(state).momentum_buffer()}},
                               std::nullopt};
          },
          [](const TensorState& state) -> std::unique_ptr<ParamState> {
            auto out = std::make_unique<optim::SGDParamState>();
            out->momentum_buffer(tensor_of(state, "momentum_buffer"));
            return out;
          }};
}

Kind adagrad_kind() {
  return {"Adagrad",
          {"sum"},
          is_a<optim::Adagrad>,
          [](const optim::OptimizerOptions&, const std::string&) { return true; },
          [](const ParamState& state) {
            const auto& s = static_cast<const optim::AdagradParamState&>(state);
            return TensorState{{{"sum", s.sum()}}, s.step()};
          },
          [](const TensorState& state) -> std::unique_ptr<ParamState> {
            auto out = std::make_unique<optim::AdagradParamState>();
            out->step(state.step.value_or(0));
            out->sum(tensor_of(state, "sum"));
            return out;
          },
          [](const optim::OptimizerOptions& options, const at::Tensor& tensor) -> std::unique_ptr<ParamState> {
            auto out = std::make_unique<optim::AdagradParamState>();
            out->step(0);
            out->sum(at::full_like(tensor.detach(),
                                   static_cast<const optim::AdagradOptions&>(options).initial_accumulator_value()));
            return out;
          }};
}

Kind rmsprop_kind() {
  return {"RMSprop",
          {"square_avg", "momentum_buffer", "grad_avg"},
          is_a<optim::RMSprop>,
          [](const optim::OptimizerOptions& options, const std::string& state) {
            const auto& o = static_cast<const optim::RMSpropOptions&>(options);
            return state == "square_avg" || (state == "grad_avg" ? o.centered() : o.momentum() > 0);
          },
          [](const ParamState& state) {
            const auto& s = static_cast<const optim::RMSpropParamState&>(state);
            return TensorState{
                {{"square_avg", s.square_avg()}, {"momentum_buffer", s.momentum_buffer()}, {"grad_avg", s.grad_avg()}},
                s.step()};
          },
          [](const TensorState& state) -> std::unique_ptr<ParamState> {
            auto out = std::make_unique<optim::RMSpropParamState>();
            out->step(state.step.value_or(0));
            out->square_avg(tensor_of(state, "square_avg"));
            out->momentum_buffer(tensor_of(state, "momentum_buffer"));
            out->grad_avg(tensor_of(state, "grad_avg"));
            return out;
          }};
}

/// nullptr: another optimizer.
const Kind* kind_of(const optim::Optimizer& optimizer) {
  static const std::array kKinds{adam_kind<optim::AdamW, optim::AdamWOptions, optim::AdamWParamState>("AdamW"),
                                 adam_kind<optim::Adam, optim::AdamOptions, optim::AdamParamState>("Adam"), sgd_kind(),
                                 adagrad_kind(), rmsprop_kind()};
  for (const Kind& kind : kKinds)
    if (kind.is(optimizer)) return &kind;
  return nullptr;
}

const optim::OptimizerOptions* options_of(const optim::Optimizer& optimizer, const at::Tensor& tensor) {
  for (const optim::OptimizerParamGroup& group : optimizer.param_groups())
    for (const at::Tensor& each : group.params())
      if (each.is_same(tensor)) return &group.options();
  return nullptr;
}

}  // namespace

std::string optimizer_name(const optim::Optimizer& optimizer) {
  const Kind* kind = kind_of(optimizer);
  return kind ? kind->name : kOtherOptimizer;
}

std::optional<std::vector<std::string>> state_names(const optim::Optimizer& optimizer, const at::Tensor& tensor) {
  const optim::OptimizerOptions* options = options_of(optimizer, tensor);
  const Kind* kind = kind_of(optimizer);
  if (options == nullptr || kind == nullptr) return std::nullopt;
  std::vector<std::string> names = kind->states;
  std::erase_if(names, [&](const std::string& name) { return !kind->has(*options, name); });
  return names;
}

std::vector<std::string> all_state_names(const optim::Optimizer& optimizer) {
  const Kind* kind = kind_of(optimizer);
  return kind ? kind->states : std::vector<std::string>();
}

std::optional<TensorState> get_state(const optim::Optimizer& optimizer, const at::Tensor& tensor) {
  const auto found = optimizer.state().find(tensor.unsafeGetTensorImpl());
  const Kind* kind = kind_of(optimizer);
  if (kind == nullptr || found == optimizer.state().end()) return std::nullopt;
  TensorState out = kind->get(*found->second);
  std::erase_if(out.tensors, [](const auto& item) { return !item.second.defined(); });
  if (out.tensors.empty()) return std::nullopt;
  return out;
}

void set_state(optim::Optimizer& optimizer, const at::Tensor& tensor, const std::optional<TensorState>& state) {
  const Kind* kind = kind_of(optimizer);
  const optim::OptimizerOptions* options = options_of(optimizer, tensor);
  if (kind == nullptr || options == nullptr) return;
  void* const key = tensor.unsafeGetTensorImpl();
  if (state)
    optimizer.state()[key] = kind->make(*state);
  else if (kind->make_first)
    optimizer.state()[key] = kind->make_first(*options, tensor);
  else
    optimizer.state().erase(key);
}

std::string archive_of(const optim::Optimizer& optimizer) {
  // Memory that LBFGS only uses within a step, and whose undefined tensors torch cannot write.
  if (is_a<optim::LBFGS>(optimizer))
    for (const auto& [key, state] : optimizer.state()) static_cast<optim::LBFGSParamState&>(*state).al(std::nullopt);
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream out;
  archive.save_to(out);
  return out.str();
}

void load_archive(optim::Optimizer& optimizer, const std::string& bytes) {
  std::istringstream in(bytes);
  torch::serialize::InputArchive archive;
  archive.load_from(in);
  optimizer.load(archive);
}

}  // namespace trireme
