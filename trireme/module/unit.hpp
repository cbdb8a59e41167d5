#pragma once
// Units: modules whose calls can be observed. libtorch's modules have no hooks, so a module that is to be sharded by
// itself is held by a Unit<M>, in place of M, or is a child of a torch::nn::Sequential.
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

namespace trireme {

/// Called around every call of a unit, on every rank in the same order.
class CallHooks {
 public:
  virtual ~CallHooks() = default;
  /// A number for this call, which the others get.
  virtual std::int64_t before_forward() = 0;
  virtual void after_forward(std::int64_t call) = 0;
  virtual void before_backward(std::int64_t call) = 0;  // the gradient of an output is known; once for each output
  virtual void after_backward(std::int64_t call) = 0;   // those of all inputs are known, if any input needs one
};

namespace unit_detail {

template <class T>
struct IsTupleLike : std::false_type {};
template <class... T>
struct IsTupleLike<std::tuple<T...>> : std::true_type {};
template <class A, class B>
struct IsTupleLike<std::pair<A, B>> : std::true_type {};

template <class T>
concept Optional = std::is_same_v<T, std::optional<typename T::value_type>>;
template <class T>
concept Mapping = requires { typename T::mapped_type; };
template <class T>
concept Listing = requires(T t) {
  t.begin();
  t.end();
  typename T::value_type;
} && !Mapping<T>;

}  // namespace unit_detail

/// Calls f(tensor) for the defined tensors of a value: a tensor, or optionals, lists, maps, pairs and tuples of such.
/// A class of your own takes part if it has `template <class F> void for_each_tensor(F f)`. False: the type is none of
/// these.
template <class T, class F>
constexpr bool for_each_tensor(T& value, const F& f) {
  using Value = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Value, at::Tensor>) {
    if (value.defined()) f(value);
    return true;
  } else if constexpr (requires { value.for_each_tensor(f); }) {
    value.for_each_tensor(f);
    return true;
  } else if constexpr (unit_detail::Optional<Value>) {
    typename Value::value_type* inner = value ? &*value : nullptr;
    return !inner || for_each_tensor(*inner, f);
  } else if constexpr (unit_detail::IsTupleLike<Value>::value) {
    return std::apply([&](auto&... parts) { return (for_each_tensor(parts, f) & ... & true); }, value);
  } else if constexpr (unit_detail::Mapping<Value>) {
    bool known = true;
    for (auto& [key, inner] : value) known = for_each_tensor(inner, f) && known;
    return known;
  } else if constexpr (unit_detail::Listing<Value>) {
    bool known = true;
    if constexpr (!std::is_arithmetic_v<typename Value::value_type>)
      for (auto& inner : value) known = for_each_tensor(inner, f) && known;
    return known;
  } else {
    return !std::is_class_v<Value>;
  }
}

/// Hooks of backward on the tensors of one call.
void hook_inputs(const std::vector<at::Tensor>& tensors, const std::shared_ptr<CallHooks>& hooks, std::int64_t call);
void hook_outputs(const std::vector<at::Tensor>& tensors, const std::shared_ptr<CallHooks>& hooks, std::int64_t call);
[[noreturn]] void throw_unknown_result(const char* type);

/// body(arguments...) as a call of a unit; without hooks only that.
template <class Body, class... Arguments>
auto call_in_unit(const std::shared_ptr<CallHooks>& hooks, Body&& body, Arguments&&... arguments) {
  if (!hooks) return std::forward<Body>(body)(std::forward<Arguments>(arguments)...);
  std::vector<at::Tensor> inputs, outputs;
  const auto into = [](std::vector<at::Tensor>& list) { return [&list](const at::Tensor& x) { list.push_back(x); }; };
  (for_each_tensor(arguments, into(inputs)), ...);
  const std::int64_t call = hooks->before_forward();
  hook_inputs(inputs, hooks, call);
  auto result = std::forward<Body>(body)(std::forward<Arguments>(arguments)...);
  hooks->after_forward(call);
  if (!for_each_tensor(result, into(outputs))) throw_unknown_result(typeid(result).name());
  hook_outputs(outputs, hooks, call);
  return result;
}

/// What all units have in common.
class AnyUnit {
 public:
  virtual ~AnyUnit() = default;
  std::shared_ptr<CallHooks> hooks;  // none: a call is an ordinary call
};

/// A module that calls its children itself, each of which can be a unit.
class CallsChildren {
 public:
  virtual ~CallsChildren() = default;
  /// null: calls of the child are ordinary calls again.
  virtual void set_child_hooks(const std::string& child, std::shared_ptr<CallHooks> hooks) = 0;
};

template <class Impl>
class UnitImpl : public Impl, public AnyUnit {
 public:
  using Impl::Impl;
  template <class... Arguments>
    requires requires(Impl& module, Arguments&&... arguments) { module.forward(std::forward<Arguments>(arguments)...); }
  auto forward(Arguments&&... arguments) {
    return call_in_unit(
        hooks, [this](auto&&... them) { return Impl::forward(std::forward<decltype(them)>(them)...); },
        std::forward<Arguments>(arguments)...);
  }
};

namespace unit_detail {
template <class M>
struct ImplOf {
  using type = M;
};
template <class M>
  requires requires { typename M::ContainedType; }
struct ImplOf<M> {
  using type = typename M::ContainedType;
};
}  // namespace unit_detail

/// A holder whose module can be a unit of its own: `Unit<Block> block{512, 8};` instead of `Block block{512, 8};`. M is
/// the holder or the module class. The rest stays as it was: register_module, block->forward(x), block(x).
template <class M>
class Unit : public torch::nn::ModuleHolder<UnitImpl<typename unit_detail::ImplOf<M>::type>> {
 public:
  using Impl = UnitImpl<typename unit_detail::ImplOf<M>::type>;
  using torch::nn::ModuleHolder<Impl>::ModuleHolder;
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    return (*this)->forward(std::forward<Arguments>(arguments)...);
  }
};

}  // namespace trireme
