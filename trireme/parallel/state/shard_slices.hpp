#pragma once
// A shard is a flat tensor with parts of several parameters: which boxes of the full tensors these are, and which of
// them this rank saves.
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/param_mesh.hpp"
#include "trireme/nn/layer.hpp"
#include "trireme/parallel/state/state_slice.hpp"

namespace trireme {

/// Elements `range` of this rank's tensor of a parameter, in row-major order.
struct ShardPart {
  const Param* param;
  Range range;
  std::int64_t offset = 0;  // of the first of them in the shard
};

/// The values of a whole shard: the weights, or a state of the optimizer.
struct ShardTensor {
  std::string kind;
  at::Tensor flat;
};

/// The boxes of the full parameter that this rank's tensor of it has. Without a mesh: all of it.
std::vector<Piece> held_pieces(const Param& param, const ParamMesh* mesh);
/// Those that this rank saves rather than another one along the model axes.
std::vector<Piece> saved_pieces(const Param& param, const ParamMesh* mesh);

/// The elements of `part` that are in `pieces`, of each tensor.
void add_slices(const ShardPart& part, const std::vector<Piece>& pieces, std::span<const ShardTensor> tensors,
                std::vector<StateSlice>& out);

/// The part of `size` elements that is due to this one of the ranks that hold the same.
Range range_of_replica(std::int64_t size, const Group& replicas);
/// A part without what is outside of a range of the shard; possibly without elements.
ShardPart within(const ShardPart& part, Range of_shard);

}  // namespace trireme
