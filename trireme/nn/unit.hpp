#pragma once
// Units: the parts of a model whose weights ZeRO-3 gathers before use and frees afterwards. libtorch modules have no
// hooks, so a model calls UnitHooks where its units begin and end.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme {

struct UnitParams {
  std::string name;                 // "layers.3"
  std::vector<std::string> params;  // full names
};

/// One use of a unit by a forward.
struct UnitVisit {
  std::size_t unit = 0;
  /// Whether the backward of this visit reads the weights. Not for an embedding, nor for a head whose loss computed
  /// both gradients in forward.
  bool weights_in_backward = true;
};

/// The units of a model, and the order in which forward visits them. A tied head visits the unit of its embedding
/// again; a unit of several layers is visited once per layer. Backward visits them in reverse.
struct UnitPlan {
  std::vector<UnitParams> units;
  std::vector<UnitVisit> visits;
};

/// Gathers and frees the weights. All ranks enter the same units in the same order.
class UnitHooks {
 public:
  virtual ~UnitHooks() = default;
  virtual void before_forward(std::size_t unit) = 0;  // the weights are gathered when it returns
  virtual void after_forward(std::size_t unit) = 0;
  virtual void before_backward(std::size_t unit) = 0;  // only for visits with weights_in_backward
};

/// Returns y. hooks.before_backward(unit) is called when backward reaches it; `hooks` must outlive the graph.
at::Tensor announce_backward(const at::Tensor& y, UnitHooks& hooks, std::size_t unit);

/// Runs body() as a visit to a unit. Recomputation belongs inside: the weights are gathered again before it runs.
template <class Body>
at::Tensor in_unit(UnitHooks* hooks, const UnitVisit& visit, Body&& body) {
  if (!hooks) return std::forward<Body>(body)();
  hooks->before_forward(visit.unit);
  at::Tensor y = std::forward<Body>(body)();
  hooks->after_forward(visit.unit);
  return visit.weights_in_backward && y.requires_grad() ? announce_backward(y, *hooks, visit.unit) : y;
}

}  // namespace trireme
