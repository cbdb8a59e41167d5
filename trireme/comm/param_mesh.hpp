#pragma once
// ParamLayout with groups: what this rank holds of a parameter, and which ranks it communicates with about it.
#include <vector>

#include "trireme/comm/mesh.hpp"
#include "trireme/layout/param_layout.hpp"

namespace trireme {

/// As cheap to copy as a reference.
class ParamMesh {
 public:
  ParamMesh(Mesh& mesh) : mesh_(&mesh) {}  // not explicit: functions that take a ParamMesh are called with a Mesh

  Mesh& mesh() const { return *mesh_; }

  /// The shape of this rank's tensor, padding included.
  Shape local_shape(const ParamSpec& spec) const { return layout().local_shape(spec); }
  /// What this rank holds, without padding.
  std::vector<Piece> pieces(const ParamSpec& spec) const { return layout().pieces(spec, mesh_->rank()); }
  /// The ranks of this stage, including this one, that hold this piece of this rank.
  std::vector<int> holders(const ParamSpec& spec, std::size_t piece) const {
    return layout().holders(spec, mesh_->rank(), piece);
  }
  bool is_first_holder(const ParamSpec& spec, std::size_t piece) const {
    return layout().is_first_holder(spec, mesh_->rank(), piece);
  }

  /// The ranks that see other tokens and hold the same part: gradients are summed, and ZeRO shards, over them.
  Group& sum_group(const ParamSpec& spec) const { return mesh_->group(spec.placement.view, layout().sum_axes(spec)); }
  /// The ranks of this stage that together hold the full parameter.
  Group& model_group(const ParamSpec& spec) const {
    return mesh_->group(spec.placement.view, layout().model_axes(spec));
  }

  /// A piece of this rank whose gradient is a partial sum, and the ranks, including this one, that have the summands.
  struct PartialPiece {
    Piece piece;
    std::vector<int> ranks;
  };
  std::vector<PartialPiece> partial_pieces(const ParamSpec& spec) const;

 private:
  const ParamLayout& layout() const { return mesh_->params(); }

  Mesh* mesh_;
};

}  // namespace trireme
