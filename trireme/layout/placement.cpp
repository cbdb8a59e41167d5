#include "trireme/layout/placement.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

/// All cuts of one dim, combined.
struct DimCut {
  std::vector<Axis> axes;  // outer first
  std::int64_t degree = 1;
  std::vector<Section> sections;  // empty: the dim is not cut into sections
  std::int64_t padded_to = 0;
};

std::vector<DimCut> by_dim(const Placement& placement, const Shape& shape, const Grid& grid) {
  std::vector<DimCut> dims(shape.size());
  AxisSet seen;
  for (const Cut& cut : placement.cuts) {
    const auto fail = [&](const auto&... why) {
      throw ConfigError(
          text(name(cut.axis), " cuts dim ", cut.dim, " of a tensor of shape ", tuple_text(shape), ": ", why...));
    };
    if (cut.dim < 0 || cut.dim >= static_cast<int>(shape.size()))
      fail("it has ", shape.size(), " dims, counted from 0");
    if (seen.contains(cut.axis)) fail("the axis is listed twice; it cuts one dim");
    seen = seen | cut.axis;
    DimCut& dim = dims[cut.dim];
    if (!cut.sections.empty() && !dim.sections.empty())
      fail("its sections are stated twice; state them with one of its axes");
    dim.axes.push_back(cut.axis);
    dim.degree *= grid.degree(cut.axis);
    dim.padded_to = std::max(dim.padded_to, cut.padded_to);
    if (!cut.sections.empty()) dim.sections = cut.sections;
  }
  return dims;
}

/// "dim 0 of size 10, cut by dp x tp = 2 x 4"
std::string describe(std::size_t dim, std::int64_t size, const DimCut& cut, const Grid& grid) {
  std::string axes, degrees;
  for (Axis axis : cut.axes) {
    axes += text(axes.empty() ? "" : " x ", name(axis));
    degrees += text(degrees.empty() ? "" : " x ", grid.degree(axis));
  }
  return text("dim ", dim, " of size ", size, ", cut by ", axes, " = ", degrees);
}

void check_dim(std::size_t dim, std::int64_t size, const DimCut& cut, const Grid& grid) {
  const auto ensure = [&](bool ok, const auto&... rule) {
    if (!ok) throw ConfigError(text(describe(dim, size, cut, grid), ": ", rule...));
  };
  if (cut.sections.empty()) {
    ensure(cut.padded_to > 0 || size % cut.degree == 0, "the size must be divisible by ", cut.degree);
    return;
  }
  ensure(cut.padded_to == 0, "a dim of several sections cannot be padded");
  std::int64_t left = size;
  for (const Section& section : cut.sections) {
    ensure(0 < section.size && section.size <= left, "the sections must be positive and add up to ", size);
    left -= section.size;
    const std::int64_t granules = section.granules == 0 ? section.size : section.granules;
    ensure(granules > 0 && section.size % granules == 0, "a section of ", section.size, " is not divisible into ",
           granules, " granules");
    ensure(granules % cut.degree == 0 || cut.degree % granules == 0, "a section of ", section.size, " has ", granules,
           " granules: one of ", cut.degree, " and ", granules, " must divide the other");
  }
  ensure(left == 0, "the sections add up to ", size - left, ", not ", size);
}

std::vector<DimCut> checked(const Placement& placement, const Shape& shape, const Grid& grid) {
  numel(shape);
  std::vector<DimCut> dims = by_dim(placement, shape, grid);
  for (std::size_t dim = 0; dim < dims.size(); ++dim) check_dim(dim, shape[dim], dims[dim], grid);
  return dims;
}

/// A range of one dim that a rank holds, and the number of ranks along the dim's axes that hold it.
struct Part {
  Range local, global;
  std::int64_t replicas = 1;
};

/// The parts of a dim of `size` that the rank with combined index `index` holds.
std::vector<Part> parts_of(const DimCut& cut, std::int64_t size, std::int64_t index) {
  if (cut.sections.empty()) {
    const std::int64_t rows = divide_up(size, cut.degree);
    const Range global{std::min(index * rows, size), std::min((index + 1) * rows, size)};
    return {{{0, global.size()}, global}};
  }
  std::vector<Part> parts;
  std::int64_t local_begin = 0, chunk_begin = 0;
  for (const Section& section : cut.sections) {
    const std::int64_t granules = section.granules == 0 ? section.size : section.granules;
    const std::int64_t replicas = std::max<std::int64_t>(cut.degree / granules, 1);  // neighbours that share a granule
    const std::int64_t rows = section.size / (cut.degree / replicas);
    const std::int64_t begin = chunk_begin + index / replicas * rows;
    parts.push_back({{local_begin, local_begin + rows}, {begin, begin + rows}, replicas});
    local_begin += rows;
    chunk_begin += section.size;
  }
  return parts;
}

std::int64_t combined_index(const DimCut& cut, const Grid& grid, int rank) {
  std::int64_t index = 0;
  for (Axis axis : cut.axes) index = index * grid.degree(axis) + grid.coord(rank, axis);
  return index;
}

}  // namespace

Cut fused_qkv(Axis axis, int dim, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
  const Section q{heads * head_dim, heads}, kv{kv_heads * head_dim, kv_heads};
  return {axis, dim, {q, kv, kv}};
}

Cut gate_up(Axis axis, int dim, std::int64_t ffn) { return {axis, dim, {{ffn, 0}, {ffn, 0}}}; }

Cut vocabulary_rows(Axis axis, int dim) { return {axis, dim, {}, kVocabularyMultiple}; }

Placement without_extra_rows(Placement placement) {
  for (Cut& cut : placement.cuts) cut.padded_to = std::min<std::int64_t>(cut.padded_to, 1);
  return placement;
}

void check(const Placement& placement, const Shape& shape, const Grid& grid) { checked(placement, shape, grid); }

Shape local_shape(const Placement& placement, const Shape& shape, const Grid& grid) {
  const std::vector<DimCut> dims = checked(placement, shape, grid);
  Shape local;
  // Index 0 always has the full number of rows, and with sections all ranks have the same number.
  for (std::size_t dim = 0; dim < dims.size(); ++dim) {
    const std::int64_t rows = parts_of(dims[dim], shape[dim], 0).back().local.end;
    const std::int64_t multiple = std::max<std::int64_t>(dims[dim].padded_to, 1);
    local.push_back(divide_up(rows, multiple) * multiple);
  }
  return local;
}

std::vector<Piece> pieces(const Placement& placement, const Shape& shape, const Grid& grid, int rank) {
  const std::vector<DimCut> dims = checked(placement, shape, grid);
  std::vector<Piece> result{{.slices = {}, .replicas = grid.size() / grid.degree(cut_axes(placement))}};
  for (std::size_t dim = 0; dim < dims.size(); ++dim) {
    const std::vector<Part> parts = parts_of(dims[dim], shape[dim], combined_index(dims[dim], grid, rank));
    std::vector<Piece> finer;
    for (const Piece& piece : result)
      for (const Part& part : parts) {
        if (part.global.size() == 0) continue;
        Piece& next = finer.emplace_back(piece);
        next.slices.local_slices.push_back({part.local.begin, part.local.end, {}});
        next.slices.global_slices.push_back({part.global.begin, part.global.end, {}});
        next.replicas *= part.replicas;
      }
    result = std::move(finer);
  }
  return result;
}

ShardedInfo sharded_info(const Placement& placement, const Shape& shape, const Grid& grid, int rank) {
  ShardedInfo info{grid.peers(rank, cut_axes(placement)), {}, shape};
  for (Piece& piece : pieces(placement, shape, grid, rank))
    info.local_global_slices_pairs.push_back(std::move(piece.slices));
  return info;
}

std::vector<int> same_piece_peers(const Placement& placement, const Shape& shape, const Grid& grid, int rank,
                                  std::size_t piece, AxisSet axes) {
  const std::vector<Piece> mine = pieces(placement, shape, grid, rank);
  require(piece < mine.size(), "rank ", rank, " keeps ", mine.size(), " pieces; there is no number ", piece);
  const auto keeps_it = [&](const Piece& other) {
    return other.slices.global_slices == mine[piece].slices.global_slices;
  };
  std::vector<int> ranks;
  for (int peer : grid.peers(rank, axes))
    if (std::ranges::any_of(pieces(placement, shape, grid, peer), keeps_it)) ranks.push_back(peer);
  return ranks;
}

AxisSet cut_axes(const Placement& placement) {
  AxisSet axes;
  for (const Cut& cut : placement.cuts) axes = axes | cut.axis;
  return axes;
}

AxisSet grad_sum_axes(const Placement& placement, AxisSet token_axes) { return token_axes - cut_axes(placement); }

}  // namespace trireme
