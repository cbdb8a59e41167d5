#pragma once
// Where each parameter lives: the one place that says which grid cuts it, which ranks hold the same part of it, and
// which ranks sum its gradient. Arithmetic only; comm/param_mesh.hpp adds the groups.
#include <optional>
#include <vector>

#include "trireme/layout/grid.hpp"
#include "trireme/layout/param_spec.hpp"

namespace trireme {

/// The axes that cut the batch: ranks along them see other tokens.
inline constexpr AxisSet kTokenAxes{Axis::dp, Axis::cp};

class ParamLayout {
 public:
  /// `experts`: another view of the same ranks, for parameters with View::expert (expert_view() in grid.hpp).
  explicit ParamLayout(Grid dense, std::optional<Grid> experts = std::nullopt);

  bool has_experts() const { return experts_.has_value(); }
  /// ConfigError for View::expert without such a view.
  const Grid& grid(View view) const;

  Shape local_shape(const ParamSpec& spec) const;
  std::vector<Piece> pieces(const ParamSpec& spec, int rank) const;

  /// Ranks along these axes hold the same part and see other tokens: the gradient is summed over them.
  AxisSet sum_axes(const ParamSpec& spec) const;
  /// The other axes of a pipeline stage: the ranks along them together hold the full parameter.
  AxisSet model_axes(const ParamSpec& spec) const;
  /// The ranks along the model axes, including `rank`, that hold this piece of `rank`.
  std::vector<int> holders(const ParamSpec& spec, int rank, std::size_t piece) const;
  /// The first of them counts it in norms and sends it where the full parameter is assembled.
  bool is_first_holder(const ParamSpec& spec, int rank, std::size_t piece) const;
  /// The ranks, including `rank`, whose partial gradients of a piece are summed before the sum over the tokens.
  std::vector<int> partial_peers(const ParamSpec& spec, int rank, std::size_t piece) const;

 private:
  Grid dense_;
  std::optional<Grid> experts_;
};

}  // namespace trireme
