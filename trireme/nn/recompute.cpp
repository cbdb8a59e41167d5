#include "trireme/nn/recompute.hpp"

#include <array>
#include <optional>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// The autocast state for both device types.
struct Autocast {
  static constexpr std::array kDevices{at::kCPU, at::kCUDA};

  static Autocast current() {
    Autocast now;
    for (std::size_t i = 0; i < kDevices.size(); ++i) {
      now.enabled[i] = at::autocast::is_autocast_enabled(kDevices[i]);
      now.dtype[i] = at::autocast::get_autocast_dtype(kDevices[i]);
    }
    now.cache = at::autocast::is_autocast_cache_enabled();
    return now;
  }
  void set() const {
    for (std::size_t i = 0; i < kDevices.size(); ++i) {
      at::autocast::set_autocast_enabled(kDevices[i], enabled[i]);
      at::autocast::set_autocast_dtype(kDevices[i], dtype[i]);
    }
    at::autocast::set_autocast_cache_enabled(cache);
  }

  std::array<bool, kDevices.size()> enabled{};
  std::array<at::ScalarType, kDevices.size()> dtype{};
  bool cache = true;
};

/// The default generators of the CPU and of the current CUDA device.
struct DefaultGenerators {
  static std::vector<at::Generator> all() {
    std::vector<at::Generator> generators{at::globalContext().defaultGenerator(at::kCPU)};
    if (at::globalContext().hasCUDA()) generators.push_back(at::globalContext().defaultGenerator(at::kCUDA));
    return generators;
  }
  static DefaultGenerators current() {
    DefaultGenerators now;
    for (at::Generator& generator : all()) now.states.push_back(generator.get_state());
    return now;
  }
  void set() const {
    std::vector<at::Generator> generators = all();
    for (std::size_t i = 0; i < generators.size(); ++i) generators[i].set_state(states[i]);
  }

  std::vector<at::Tensor> states;
};

/// Restores an earlier state during its lifetime; afterwards the current one.
template <class State>
class Restored {
 public:
  explicit Restored(const State& then) : now_(State::current()) { then.set(); }
  ~Restored() { now_.set(); }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

 private:
  const State now_;
};

/// The state of a call that backward needs in addition to the inputs.
struct RecomputedCall final : torch::CustomClassHolder {
  RecomputeBody body;
  Autocast autocast = Autocast::current();
  std::optional<DefaultGenerators> generators;
};

at::Tensor run_again(const RecomputedCall& call, const std::vector<at::Tensor>& inputs) {
  const Restored<Autocast> as_it_was(call.autocast);
  std::optional<Restored<DefaultGenerators>> same_numbers;
  if (call.generators) same_numbers.emplace(*call.generators);
  return call.body(inputs);
}

struct RecomputeCall : torch::autograd::Function<RecomputeCall> {
  /// `anchor`: some input must require grad for backward to be called, and the body's parameters are not known here.
  template <class... Tensors>
  static at::Tensor forward(AutogradContext* ctx, const c10::intrusive_ptr<RecomputedCall>& call,
                            const at::Tensor& /*anchor*/, const Tensors&... inputs) {
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    ctx->save_for_backward({inputs...});
    const at::Tensor y = call->body({inputs...});
    // If the body returns an input, or a view of one, this function would become the grad_fn of that tensor.
    return (inputs.is_alias_of(y) || ...) ? y.clone() : y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto capsule = ctx->saved_data["call"].toCapsule();
    tensor_list inputs;
    for (const at::Tensor& saved : ctx->get_saved_variables())
      inputs.push_back(saved.detach().set_requires_grad(saved.requires_grad()));
    {
      const at::AutoGradMode on(true);
      const at::Tensor y = run_again(static_cast<const RecomputedCall&>(*capsule), inputs);
      // If everything inside is frozen, there is nothing to backpropagate through.
      if (y.requires_grad()) torch::autograd::backward({y}, {grads[0]});
    }
    tensor_list out(2);  // the call and the anchor have no gradients
    for (const at::Tensor& input : inputs) out.push_back(input.grad());
    return out;
  }
};

template <std::size_t... kI>
at::Tensor apply(const c10::intrusive_ptr<RecomputedCall>& call, const std::vector<at::Tensor>& inputs,
                 std::index_sequence<kI...>) {
  return RecomputeCall::apply(call, at::zeros({}).set_requires_grad(true), inputs[kI]...);
}

}  // namespace

at::Tensor recompute(const RecomputeBody& body, const RecomputeOptions& options,
                     const std::vector<at::Tensor>& inputs) {
  if (!at::GradMode::is_enabled()) return body(inputs);
  const auto call = c10::make_intrusive<RecomputedCall>();
  call->body = body;
  if (options.preserve_rng) call->generators = DefaultGenerators::current();
  switch (inputs.size()) {
    case 1: return apply(call, inputs, std::make_index_sequence<1>());
    case 2: return apply(call, inputs, std::make_index_sequence<2>());
    case 3: return apply(call, inputs, std::make_index_sequence<3>());
    case 4: return apply(call, inputs, std::make_index_sequence<4>());
    default: throw InternalError(text("recompute: ", inputs.size(), " inputs; 1 to 4 are possible"));
  }
}

}  // namespace trireme
