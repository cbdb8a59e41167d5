#pragma once
// The seam between a model and who keeps its weights. A unit is a part of a model whose weights come and go together:
// what ZeRO 3 gathers before use and frees afterwards. libtorch's modules have no hooks, so a model says where its units
// begin and end.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme {

struct Unit {
  std::string name;                 // "layers.3"
  std::vector<std::string> params;  // full names
  /// Whether backward reads the weights. An embedding's does not, nor that of a head whose loss made both gradients
  /// in forward.
  bool weights_in_backward = true;
};

/// The units of a model, and the order in which a forward enters them. A tied head enters its embedding's unit again; a
/// unit of several layers is entered once for each of them. Backward goes the other way round.
struct UnitPlan {
  std::vector<Unit> units;
  std::vector<std::size_t> forward;
};

/// Whoever brings the weights. All ranks enter the same units in the same order.
class UnitHooks {
 public:
  virtual ~UnitHooks() = default;
  virtual void before_forward(std::size_t unit) = 0;  // the weights are there when it returns
  virtual void after_forward(std::size_t unit) = 0;
  virtual void before_backward(
      std::size_t unit) = 0;  // the weights are there again; not called where nobody needs them
};

/// y itself. When backward comes to it, `hooks` is told first.
at::Tensor announce_backward(const at::Tensor& y, UnitHooks& hooks, std::size_t unit);

/// A visit to a unit, with body() in the middle. Recompute belongs inside: weights are back before it runs again.
template <class Body>
at::Tensor in_unit(UnitHooks* hooks, std::size_t unit, bool weights_in_backward, Body&& body) {
  if (!hooks) return std::forward<Body>(body)();
  hooks->before_forward(unit);
  at::Tensor y = std::forward<Body>(body)();
  hooks->after_forward(unit);
  return weights_in_backward && y.requires_grad() ? announce_backward(y, *hooks, unit) : y;
}

}  // namespace trireme
