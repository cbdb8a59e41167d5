#pragma once
// Which axis cuts which dim of a parameter, and so which part of it every rank keeps.
#include <cstdint>
#include <vector>

#include "trireme/layout/axis.hpp"
#include "trireme/layout/grid.hpp"
#include "trireme/layout/slices.hpp"

namespace trireme {

/// A part of a dim that is cut on its own. `granules` are its indivisible parts, such as heads; 0: every element is one.
struct Section {
  int64_t size = 0;
  int64_t granules = 0;
  bool operator==(const Section&) const = default;
};

/// `axis` cuts tensor dim `dim` into equal parts, in the order of its coordinate.
///   sections   the dim is a concatenation of sections; a rank keeps its part of each, concatenated (fused QKV, gate-up).
///            Where the degree is larger than a section's granules, degree / granules neighbouring ranks keep the same granule.
///   padded   the size need not be divisible: a rank's tensor has ceil(size / degree) rows, of which the last ranks use
///            fewer or none (vocabulary).
struct Cut {
  Axis axis;
  int dim;
  std::vector<Section> sections = {};
  bool padded = false;
  bool operator==(const Cut&) const = default;
};

/// An axis not listed keeps a full replica. Several axes may cut one dim: the first listed is the outer one, together
/// they cut as one axis of their combined index would, and what one of them says of sections and padding holds for the
/// dim.
struct Placement {
  std::vector<Cut> cuts;
  bool operator==(const Placement&) const = default;
};

Cut fused_qkv(Axis axis, int dim, int64_t heads, int64_t kv_heads, int64_t head_dim);
Cut gate_up(Axis axis, int dim, int64_t ffn);

/// ConfigError that names the dim, the size, the axes, the degree and the rule.
void check(const Placement& placement, const Shape& shape, const Grid& grid);

/// The shape of every rank's tensor, padding included. This and the following check first.
Shape local_shape(const Placement& placement, const Shape& shape, const Grid& grid);

/// A box of the tensor, all numbers spelt out, and how many ranks of the grid keep it. Of the whole grid: a parameter
/// that lives on one stage is kept by 1 / pp of them.
struct Piece {
  SlicesPair slices;
  int64_t replicas = 1;
  bool operator==(const Piece&) const = default;
};

/// What `rank` keeps, without padding; empty where it has only padding.
std::vector<Piece> pieces(const Placement& placement, const Shape& shape, const Grid& grid, int rank);

/// The pieces of `rank` as nanotron states them; global_ranks are its peers along the axes that cut.
ShardedInfo sharded_info(const Placement& placement, const Shape& shape, const Grid& grid, int rank);

/// The ranks of `rank`'s group along `axes` that keep its piece number `piece` too: those whose gradients of a
/// replicated KV head are summed.
std::vector<int> same_piece_peers(const Placement& placement, const Shape& shape, const Grid& grid, int rank,
                                  size_t piece, AxisSet axes);

AxisSet cut_axes(const Placement& placement);

/// A gradient is summed over the axes that see other tokens and keep the same parameter.
AxisSet grad_sum_axes(const Placement& placement, AxisSet token_axes);

}  // namespace trireme
