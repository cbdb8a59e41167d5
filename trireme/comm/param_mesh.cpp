#include "trireme/comm/param_mesh.hpp"

#include <utility>

namespace trireme {

std::vector<ParamMesh::PartialPiece> ParamMesh::partial_pieces(const ParamSpec& spec) const {
  std::vector<PartialPiece> out;
  std::vector<Piece> own = pieces(spec);
  for (std::size_t i = 0; i < own.size(); ++i) {
    std::vector<int> ranks = layout().partial_peers(spec, mesh_->rank(), i);
    if (ranks.size() >= 2) out.push_back({std::move(own[i]), std::move(ranks)});
  }
  return out;
}

}  // namespace trireme
