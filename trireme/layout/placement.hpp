#pragma once
// Parameter sharding: which axis shards which dim of a parameter, and which part each rank holds as a result.
#include <cstdint>
#include <vector>

#include "trireme/layout/axis.hpp"
#include "trireme/layout/grid.hpp"
#include "trireme/layout/slices.hpp"

namespace trireme {

/// Part of a dim that is sharded separately. `granules`: number of indivisible units, such as heads; 0: every element.
struct Section {
  std::int64_t size = 0;
  std::int64_t granules = 0;
  bool operator==(const Section&) const = default;
};

/// The grid that a parameter is placed on: the dense one (pp, dp, cp, tp), or the experts' view of the same ranks (pp,
/// edp, ep, tp).
enum class View { dense, expert };

/// `axis` shards tensor dim `dim` into equal parts, in the order of the coordinate along the axis.
///   sections   the dim is a concatenation of sections; a rank holds its part of each, concatenated (fused QKV,
///              gate-up). If the degree exceeds a section's granules, degree / granules neighbouring ranks hold the
///              same granule.
///   padded_to  0: the size must be divisible. Else a rank holds ceil(size / degree) rows, the last ranks fewer or
///              none, and its tensor has rows of zeros after them, up to a multiple of this (vocabulary).
struct Cut {
  Axis axis;
  int dim;
  std::vector<Section> sections = {};
  std::int64_t padded_to = 0;
  bool operator==(const Cut&) const = default;
};

/// The parameter is replicated along axes that are not listed. Several axes may shard one dim: the first listed is the
/// outer one, together they act like one axis with their combined index, and sections and padding given for one of them
/// apply to the dim.
struct Placement {
  std::vector<Cut> cuts;
  View view = View::dense;  // whose axes the cuts name
  bool operator==(const Placement&) const = default;
};

Cut fused_qkv(Axis axis, int dim, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim);
Cut gate_up(Axis axis, int dim, std::int64_t ffn);

// Note [Vocabulary rows]: the embedding and the head have a multiple of 128 rows on every rank, because a GPU is much
// slower at products with matrices of other sizes (the 50,257 rows of GPT-2). The rows after a rank's share of the
// vocabulary are padding, and zeros: in weights, gradients, optimizer states, and as columns of the logits. They are in
// no piece, and therefore in no norm, file or count of parameters.
constexpr std::int64_t kVocabularyMultiple = 128;
Cut vocabulary_rows(Axis axis, int dim);

/// The same pieces in tensors without rows that no rank needs, as in files: a padded dim has ceil(size / degree) rows.
Placement without_extra_rows(Placement placement);

/// Throws ConfigError that names the dim, the size, the axes, the degree and the violated rule.
void check(const Placement& placement, const Shape& shape, const Grid& grid);

/// The shape of the local tensor, the same on every rank, including padding. This and the functions below call `check`.
Shape local_shape(const Placement& placement, const Shape& shape, const Grid& grid);

/// A box of the tensor with explicit bounds, and the number of ranks that hold it. Counted over the whole grid: a
/// parameter of one pipeline stage exists on 1 / pp of them.
struct Piece {
  SlicesPair slices;
  std::int64_t replicas = 1;
  bool operator==(const Piece&) const = default;
};

/// The parts that `rank` holds, without padding; empty if it has only padding.
std::vector<Piece> pieces(const Placement& placement, const Shape& shape, const Grid& grid, int rank);

/// The pieces of `rank` in nanotron's format; global_ranks are its peers along the sharding axes.
ShardedInfo sharded_info(const Placement& placement, const Shape& shape, const Grid& grid, int rank);

/// The ranks of `rank`'s group along `axes` that also hold its piece `piece`: for a replicated KV head, the ranks that
/// sum its gradient.
std::vector<int> same_piece_peers(const Placement& placement, const Shape& shape, const Grid& grid, int rank,
                                  std::size_t piece, AxisSet axes);

AxisSet cut_axes(const Placement& placement);

/// A gradient is summed over the axes whose ranks process different tokens and replicate the parameter.
AxisSet grad_sum_axes(const Placement& placement, AxisSet token_axes);

}  // namespace trireme
