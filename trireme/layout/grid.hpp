#pragma once
// The rank grid (device mesh): coordinates and groups along named axes. Pure arithmetic: no torch, no communication.
#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/layout/axis.hpp"

namespace trireme {

struct Degrees {
  int pp = 1, dp = 1, cp = 1, tp = 1;
};

/// The coordinates of a rank.
struct LocalRanks {
  int pp = 0, dp = 0, cp = 0, tp = 0;
  bool operator==(const LocalRanks&) const = default;
};

/// World ranks indexed [pp][dp][cp][tp], always in this order; `get_local_ranks` is the inverse.
class WorldRankMatrix {
 public:
  WorldRankMatrix(std::array<int, 4> shape, std::vector<int> flat) : shape_(shape), flat_(std::move(flat)) {}
  int operator()(int pp, int dp, int cp, int tp) const;
  const std::array<int, 4>& shape() const { return shape_; }
  const std::vector<int>& flat() const { return flat_; }

 private:
  std::array<int, 4> shape_;
  std::vector<int> flat_;  // row-major
};

/// Named axes over ranks 0..size-1. The axes are listed outermost first; a cell is the row-major index of a grid point,
/// so neighbouring cells differ along the last axis. The rank of a cell is its index, unless a table maps it.
class Grid {
 public:
  using AxisValue = std::pair<Axis, int>;
  static constexpr int kMaxRanks = 1 << 24;
  static constexpr const char* kDefaultOrder = "tp-cp-dp-pp";

  explicit Grid(std::vector<AxisValue> degrees);
  /// With a table from cell to rank, a permutation of 0..size-1.
  Grid(std::vector<AxisValue> degrees, std::vector<int> rank_of_cell);

  /// `order` in Megatron's notation, innermost first. An omitted axis must have degree 1.
  static Grid dense(const Degrees& degrees, std::string_view order = kDefaultOrder);

  int size() const { return static_cast<int>(rank_of_cell_.size()); }
  const std::vector<AxisValue>& axes() const { return axes_; }
  /// 1 for an axis that is not in the grid.
  int degree(Axis axis) const { return degree_[static_cast<std::size_t>(axis)]; }
  /// The size of each group along `axes`.
  int degree(AxisSet axes) const;
  /// 0 for an axis that is not in the grid.
  int coord(int rank, Axis axis) const;

  /// The rank at these coordinates; omitted axes are at 0.
  int rank_at(std::initializer_list<AxisValue> coords) const;
  int rank_at(const LocalRanks& at) const;
  /// Both only for grids with the axes pp, dp, cp and tp.
  LocalRanks get_local_ranks(int rank) const;
  WorldRankMatrix world_rank_matrix() const;

  /// The ranks that differ from `rank` only along `axes`, sorted by their coordinates along them, outermost axis first:
  /// the rank order within the group. It is ascending unless the grid has a table.
  std::vector<int> peers(int rank, AxisSet axes) const;
  /// All groups along `axes`, sorted by their smallest rank; each rank is in exactly one.
  std::vector<std::vector<int>> groups(AxisSet axes) const;

  /// "pp=2 dp=2 cp=1 tp=2": the format of a grid in all error messages and log lines.
  std::string str() const;

 private:
  int stride(Axis axis) const { return stride_[static_cast<std::size_t>(axis)]; }
  int cell_of(int rank) const;
  std::vector<int> cell_offsets(AxisSet axes) const;
  std::vector<int> group_of(int rank, AxisSet axes, const std::vector<int>& offsets) const;

  std::vector<AxisValue> axes_;             // outermost first
  std::array<int, kAxes.size()> degree_{};  // by axis
  std::array<int, kAxes.size()> stride_{};  // by axis, in cells
  std::vector<int> rank_of_cell_, cell_of_rank_;
};

/// The expert-parallel view of the same ranks, axes pp, edp, ep, tp; `expert_tp` = 0 means the dense tp.
/// Within a stage let q be the index in dp x cp, in the dense grid's order, and j = q * TP + tp. Then
/// j = (edp * EP + ep) * ETP + etp: ep takes the innermost part of dp x cp, and of tp too if expert_tp < tp.
Grid expert_view(const Grid& dense, int ep, int expert_tp = 0);

}  // namespace trireme
