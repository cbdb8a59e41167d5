#pragma once
// What is known of a parameter without its values. Everything that depends on the layout reads it from here: initial
// values, gradient sums, norms, ZeRO, weights on disk.
#include <cstdint>
#include <optional>

#include "trireme/layout/placement.hpp"

namespace trireme {

/// What a parameter is initialised as; nn/init.hpp says which distribution a scheme uses for each.
enum class Fill { zeros, ones, bias, weight, residual_weight, embedding };

struct ParamSpec {
  Shape shape;  // of the full parameter, over all ranks
  Placement placement = {};
  /// Axes along which ranks hold the same values but compute only a partial gradient each, because they see other
  /// tokens or other heads: the weight of a norm with sequence parallelism. The gradient is the sum over them
  /// (parallel/tensor/gradients.hpp). Along other axes that do not cut the parameter its gradient is the same on all
  /// ranks by construction. The axes that cut the batch need not be named.
  AxisSet partial = {};
  Fill fill = Fill::weight;
  std::int64_t fan_in = 0;  // inputs per output, for schemes that ask; 0: the last dim (a bias has none of its own)
  std::optional<TiedInfo> tie = {};
  /// Changed by its layer, not by an optimizer (the selection bias of a router): whole on every rank in every stage.
  bool set_by_layer = false;
  /// A copy of a parameter that belongs to another pipeline chunk: not counted in norms and not saved.
  bool is_tied_copy = false;
};

}  // namespace trireme
