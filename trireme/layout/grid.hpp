#pragma once
// Where every rank stands: named axes over ranks. Pure arithmetic: no torch, no communication.
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

/// World ranks by coordinates, always as [pp][dp][cp][tp]; `get_local_ranks` is the inverse.
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

/// Named axes over ranks 0..size-1. The axes are listed outermost first; a cell is the row-major index of a point, so
/// neighbouring cells differ along the last axis. A cell's number is its rank, unless a table says otherwise.
class Grid {
 public:
  using AxisValue = std::pair<Axis, int>;
  static constexpr int kMaxRanks = 1 << 24;
  static constexpr const char* kDefaultOrder = "tp-cp-dp-pp";

  explicit Grid(std::vector<AxisValue> degrees);
  /// The rank of each cell by a table, a permutation of 0..size-1.
  Grid(std::vector<AxisValue> degrees, std::vector<int> rank_of_cell);

  /// `order` as Megatron spells it, innermost first. An axis left out must have degree 1.
  static Grid dense(const Degrees& degrees, std::string_view order = kDefaultOrder);

  int size() const { return static_cast<int>(rank_of_cell_.size()); }
  const std::vector<AxisValue>& axes() const { return axes_; }
  /// 1 for an axis that the grid does not have.
  int degree(Axis axis) const { return degree_[static_cast<size_t>(axis)]; }
  /// The size of every group along `axes`.
  int degree(AxisSet axes) const;
  /// 0 for an axis that the grid does not have.
  int coord(int rank, Axis axis) const;

  /// The rank at these coordinates; an axis not named is at 0.
  int rank_at(std::initializer_list<AxisValue> coords) const;
  int rank_at(const LocalRanks& at) const;
  /// These two are for grids of pp, dp, cp and tp.
  LocalRanks get_local_ranks(int rank) const;
  WorldRankMatrix world_rank_matrix() const;

  /// The ranks that differ from `rank` only along `axes`, by their coordinates along them, outermost axis first: the
  /// order of the ranks in the group. That is ascending, unless the grid has a table.
  std::vector<int> peers(int rank, AxisSet axes) const;
  /// All groups along `axes`: each rank is in one. By their smallest rank.
  std::vector<std::vector<int>> groups(AxisSet axes) const;

  /// "pp=2 dp=2 cp=1 tp=2": every error message and log line prints a grid this way.
  std::string str() const;

 private:
  int stride(Axis axis) const { return stride_[static_cast<size_t>(axis)]; }
  int cell_of(int rank) const;
  std::vector<int> cell_offsets(AxisSet axes) const;
  std::vector<int> group_of(int rank, AxisSet axes, const std::vector<int>& offsets) const;

  std::vector<AxisValue> axes_;             // outermost first
  std::array<int, kAxes.size()> degree_{};  // by axis
  std::array<int, kAxes.size()> stride_{};  // by axis, in cells
  std::vector<int> rank_of_cell_, cell_of_rank_;
};

/// The experts' view of the same ranks, axes pp, edp, ep, tp; `expert_tp` = 0 means the dense tp.
/// Within a stage let q be the index in dp x cp, in the dense grid's order, and j = q * TP + tp. Then
/// j = (edp * EP + ep) * ETP + etp: the axis ep takes the innermost of dp x cp, and of tp too where expert_tp < tp.
Grid expert_view(const Grid& dense, int ep, int expert_tp = 0);

}  // namespace trireme
