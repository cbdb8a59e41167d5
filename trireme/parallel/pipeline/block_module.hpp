#pragma once
// What a block of a pipeline computes: any torch module, or any function of tensors.
#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <torch/nn/module.h>

#include "trireme/parallel/pipeline/tensor_shape.hpp"

namespace trireme {

using NamedTensors = std::map<std::string, at::Tensor>;
/// A single tensor, or a dictionary: what modules in blocks may return.
using BlockResult = std::variant<at::Tensor, NamedTensors>;

namespace detail {

template <std::size_t>
using OneTensor = const at::Tensor&;

template <class F, std::size_t... I>
constexpr bool takes_tensors(std::index_sequence<I...>) {
  return std::is_invocable_v<F&, OneTensor<I>...>;
}
template <class F, std::size_t... N>
constexpr bool takes_some_tensors(std::index_sequence<N...>) {
  return (takes_tensors<F>(std::make_index_sequence<N>()) || ...);
}

/// Can be called with what the module's forward takes.
template <class M>
struct ForwardOf {
  std::shared_ptr<M> module;
  template <class... X>
  auto operator()(const X&... xs) const -> decltype(std::declval<M&>().forward(xs...)) {
    return module->forward(xs...);
  }
};

template <class T>
concept ModuleHolder = requires(T& x) {
  { x.ptr() } -> std::convertible_to<std::shared_ptr<torch::nn::Module>>;
};
template <class T>
concept ModulePointer = std::is_convertible_v<T, std::shared_ptr<torch::nn::Module>>;

}  // namespace detail

/// Made from a module holder (torch::nn::Linear), a shared_ptr to a module, or a function. Its forward, or the
/// function, takes tensors (the block's inputs in the order of its keys) or a `const NamedTensors&`.
class BlockModule {
 public:
  static constexpr std::size_t kMaxArguments = 8;

  template <class M>
    requires(!std::is_same_v<std::remove_cvref_t<M>, BlockModule>)
  BlockModule(M module) {
    if constexpr (detail::ModuleHolder<M>) {
      set(module.ptr());
    } else if constexpr (detail::ModulePointer<M>) {
      set(std::move(module));
    } else {
      set_function(std::move(module));
    }
  }

  /// Whether it can be called with this number of tensors.
  bool takes(std::size_t count) const { return takes_(count); }
  /// `keys`: of the tensors.
  BlockResult operator()(const std::vector<std::string>& keys, const Tensors& tensors) const {
    return call_(keys, tensors);
  }
  /// nullptr if it is a function.
  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }

 private:
  template <class M>
  void set(std::shared_ptr<M> module) {
    module_ = module;
    set_function(detail::ForwardOf<M>{std::move(module)});
  }

  template <class F>
  void set_function(F f) {
    if constexpr (detail::takes_some_tensors<F>(std::make_index_sequence<kMaxArguments + 1>())) {
      takes_ = [](std::size_t count) { return takes_count<F>(count, std::make_index_sequence<kMaxArguments + 1>()); };
      call_ = [f = std::move(f)](const std::vector<std::string>&, const Tensors& tensors) mutable {
        BlockResult result;
        call_count(f, tensors, result, std::make_index_sequence<kMaxArguments + 1>());
        return result;
      };
    } else {
      static_assert(std::is_invocable_v<F&, const NamedTensors&>,
                    "a block's module takes up to 8 `const at::Tensor&`, or one `const NamedTensors&`");
      takes_ = [](std::size_t) { return true; };
      call_ = [f = std::move(f)](const std::vector<std::string>& keys, const Tensors& tensors) mutable {
        NamedTensors named;
        for (std::size_t i = 0; i < keys.size(); ++i) named[keys[i]] = tensors[i];
        return as_result(f(std::as_const(named)));
      };
    }
  }

  template <class F, std::size_t... N>
  static bool takes_count(std::size_t count, std::index_sequence<N...>) {
    return ((count == N && detail::takes_tensors<F>(std::make_index_sequence<N>())) || ...);
  }
  template <class F, std::size_t... N>
  static void call_count(F& f, const Tensors& tensors, BlockResult& result, std::index_sequence<N...>) {
    static_cast<void>(
        ((tensors.size() == N && (call_with(f, tensors, result, std::make_index_sequence<N>()), true)) || ...));
  }
  template <class F, std::size_t... I>
  static void call_with(F& f, const Tensors& tensors, BlockResult& result, std::index_sequence<I...> indices) {
    if constexpr (detail::takes_tensors<F>(indices)) result = as_result(f(tensors[I]...));
  }
  template <class R>
  static BlockResult as_result(R result) {
    static_assert(std::is_same_v<R, at::Tensor> || std::is_same_v<R, NamedTensors>,
                  "a block's module returns one at::Tensor, or a NamedTensors (std::map<std::string, at::Tensor>)");
    return result;
  }

  std::shared_ptr<torch::nn::Module> module_{};
  std::function<bool(std::size_t)> takes_{};
  std::function<BlockResult(const std::vector<std::string>&, const Tensors&)> call_{};
};

}  // namespace trireme
