#include "trireme/layout/param_layout.hpp"

#include <algorithm>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

AxisSet token_axes(View view) { return view == View::dense ? kTokenAxes : AxisSet{Axis::edp, Axis::ep}; }

}  // namespace

ParamLayout::ParamLayout(Grid dense, std::optional<Grid> experts)
    : dense_(std::move(dense)), experts_(std::move(experts)) {
  require<ConfigError>(!experts_ || experts_->size() == dense_.size(), "the experts' layout ",
                       experts_ ? experts_->str() : "", " and ", dense_.str(), " are not of the same ranks");
}

const Grid& ParamLayout::grid(View view) const {
  require<ConfigError>(view == View::dense || experts_.has_value(), "the layout ", dense_.str(),
                       " was made without a view for experts");
  return view == View::dense ? dense_ : *experts_;
}

Shape ParamLayout::local_shape(const ParamSpec& spec) const {
  return trireme::local_shape(spec.placement, spec.shape, grid(spec.placement.view));
}

std::vector<Piece> ParamLayout::pieces(const ParamSpec& spec, int rank) const {
  return trireme::pieces(spec.placement, spec.shape, grid(spec.placement.view), rank);
}

AxisSet ParamLayout::sum_axes(const ParamSpec& spec) const {
  return grad_sum_axes(spec.placement, token_axes(spec.placement.view));
}

AxisSet ParamLayout::model_axes(const ParamSpec& spec) const {
  AxisSet axes;
  for (const auto& [axis, degree] : grid(spec.placement.view).axes()) axes = axes | axis;
  return axes - Axis::pp - sum_axes(spec);
}

std::vector<int> ParamLayout::holders(const ParamSpec& spec, int rank, std::size_t piece) const {
  return same_piece_peers(spec.placement, spec.shape, grid(spec.placement.view), rank, piece, model_axes(spec));
}

bool ParamLayout::is_first_holder(const ParamSpec& spec, int rank, std::size_t piece) const {
  return std::ranges::min(holders(spec, rank, piece)) == rank;
}

std::vector<int> ParamLayout::partial_peers(const ParamSpec& spec, int rank, std::size_t piece) const {
  // Ranks that hold the same granule of a cut dim (a KV head) use it for other queries each: their gradients are
  // partial too.
  const AxisSet axes = spec.partial | cut_axes(spec.placement);
  if (grid(spec.placement.view).degree(axes) == 1) return {rank};
  return same_piece_peers(spec.placement, spec.shape, grid(spec.placement.view), rank, piece, axes);
}

}  // namespace trireme
