#include "trireme/layout/grid.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace trireme {
namespace {

constexpr AxisSet kDenseAxes{Axis::pp, Axis::dp, Axis::cp, Axis::tp};

void check_at_least_one(const char* key, int value) {
  require<ConfigError>(value >= 1, "parallelism.", key, " = ", value, ": must be at least 1");
}

std::vector<int> zero_to(int size) {
  std::vector<int> numbers(size);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

int checked_product(const std::vector<Grid::AxisValue>& degrees) {
  std::int64_t size = 1;
  for (auto [axis, degree] : degrees) {
    check_at_least_one(name(axis), degree);
    size *= degree;
    require<ConfigError>(size <= Grid::kMaxRanks, "parallelism.", name(axis), " = ", degree,
                         ": the product of the degrees is more than ", Grid::kMaxRanks, " ranks");
  }
  return static_cast<int>(size);
}

/// The axes that `order` names, innermost first.
std::vector<Axis> parse_order(std::string_view order) {
  const auto fail = [&](const auto&... why) {
    throw ConfigError(text("parallelism.order = \"", order, "\": ", why...,
                           "\n  fix: name each of tp, cp, dp and pp once, innermost first, as in \"",
                           Grid::kDefaultOrder, "\""));
  };
  std::vector<Axis> axes;
  AxisSet seen;
  for (std::size_t begin = 0; begin <= order.size();) {
    const std::size_t end = std::min(order.find('-', begin), order.size());
    const std::string_view word = order.substr(begin, end - begin);
    const auto axis = std::ranges::find_if(kAxes, [&](Axis a) { return word == name(a); });
    if (axis == kAxes.end() || !kDenseAxes.contains(*axis)) fail("\"", word, "\" is not an axis");
    if (seen.contains(*axis)) fail("\"", word, "\" is named twice");
    seen = seen | *axis;
    axes.push_back(*axis);
    begin = end + 1;
  }
  return axes;
}

}  // namespace

int WorldRankMatrix::operator()(int pp, int dp, int cp, int tp) const {
  const std::array<int, 4> at{pp, dp, cp, tp};
  std::size_t index = 0;
  for (std::size_t i = 0; i < at.size(); ++i) {
    require<ConfigError>(0 <= at[i] && at[i] < shape_[i], "world_rank_matrix[", pp, "][", dp, "][", cp, "][", tp,
                         "]: the shape is ", shape_[0], " x ", shape_[1], " x ", shape_[2], " x ", shape_[3]);
    index = index * shape_[i] + at[i];
  }
  return flat_[index];
}

Grid::Grid(std::vector<AxisValue> degrees) : Grid(degrees, zero_to(checked_product(degrees))) {}

Grid::Grid(std::vector<AxisValue> degrees, std::vector<int> rank_of_cell)
    : axes_(std::move(degrees)), rank_of_cell_(std::move(rank_of_cell)) {
  const int num_cells = checked_product(axes_);
  require<ConfigError>(size() == num_cells, "grid ", str(), ": the table has ", size(), " ranks");
  degree_.fill(1);
  stride_.fill(1);
  AxisSet seen;
  int stride = num_cells;
  for (auto [axis, degree] : axes_) {
    require<ConfigError>(!seen.contains(axis), "grid ", str(), ": ", name(axis), " is named twice");
    seen = seen | axis;
    stride /= degree;
    degree_[static_cast<std::size_t>(axis)] = degree;
    stride_[static_cast<std::size_t>(axis)] = stride;
  }
  cell_of_rank_.assign(rank_of_cell_.size(), -1);
  for (int cell = 0; cell < num_cells; ++cell) {
    const int rank = rank_of_cell_[cell];
    require<ConfigError>(0 <= rank && rank < num_cells, "rank ", rank, " in the table of a grid of ", num_cells,
                         " ranks");
    require<ConfigError>(cell_of_rank_[rank] < 0, "rank ", rank, " is twice in the table of a grid");
    cell_of_rank_[rank] = cell;
  }
}

Grid Grid::dense(const Degrees& degrees, std::string_view order) {
  std::vector<AxisValue> left{
      {Axis::pp, degrees.pp}, {Axis::dp, degrees.dp}, {Axis::cp, degrees.cp}, {Axis::tp, degrees.tp}};
  std::vector<AxisValue> innermost_first;
  for (Axis axis : parse_order(order)) {
    const auto found = std::ranges::find(left, axis, &AxisValue::first);
    innermost_first.push_back(*found);
    left.erase(found);
  }
  for (auto [axis, degree] : left) {
    require<ConfigError>(degree == 1, "parallelism.order = \"", order, "\": leaves out ", name(axis), " = ", degree,
                         "; an axis left out must have degree 1\n  fix: add ", name(axis), " to parallelism.order");
    innermost_first.emplace_back(axis, degree);
  }
  return Grid(std::vector<AxisValue>(innermost_first.rbegin(), innermost_first.rend()));
}

int Grid::degree(AxisSet axes) const {
  int product = 1;
  for (Axis axis : axes) product *= degree(axis);
  return product;
}

// Called for every rank of a world, so the grid is formatted only on failure; `require` would format it always.
int Grid::cell_of(int rank) const {
  if (rank < 0 || rank >= size())
    throw ConfigError(text("rank ", rank, ": the grid ", str(), " has ranks 0 to ", size() - 1));
  return cell_of_rank_[rank];
}

int Grid::coord(int rank, Axis axis) const { return cell_of(rank) / stride(axis) % degree(axis); }

int Grid::rank_at(std::initializer_list<AxisValue> coords) const {
  int cell = 0;
  for (auto [axis, at] : coords) {
    if (at < 0 || at >= degree(axis))
      throw ConfigError(
          text(name(axis), " coordinate ", at, ": the grid ", str(), " has ", name(axis), " = ", degree(axis)));
    cell += at * stride(axis);
  }
  return rank_of_cell_[cell];
}

int Grid::rank_at(const LocalRanks& at) const {
  return rank_at({{Axis::pp, at.pp}, {Axis::dp, at.dp}, {Axis::cp, at.cp}, {Axis::tp, at.tp}});
}

LocalRanks Grid::get_local_ranks(int rank) const {
  return {.pp = coord(rank, Axis::pp),
          .dp = coord(rank, Axis::dp),
          .cp = coord(rank, Axis::cp),
          .tp = coord(rank, Axis::tp)};
}

WorldRankMatrix Grid::world_rank_matrix() const {
  require<ConfigError>(degree(kDenseAxes) == size(), "grid ", str(),
                       ": world_rank_matrix is of pp, dp, cp and tp only");
  const std::array<int, 4> shape{degree(Axis::pp), degree(Axis::dp), degree(Axis::cp), degree(Axis::tp)};
  std::vector<int> flat;
  flat.reserve(rank_of_cell_.size());
  for (int pp = 0; pp < shape[0]; ++pp)
    for (int dp = 0; dp < shape[1]; ++dp)
      for (int cp = 0; cp < shape[2]; ++cp)
        for (int tp = 0; tp < shape[3]; ++tp) flat.push_back(rank_at({.pp = pp, .dp = dp, .cp = cp, .tp = tp}));
  return {shape, std::move(flat)};
}

/// The offsets from the first cell of a group along `axes` to each of its cells.
std::vector<int> Grid::cell_offsets(AxisSet axes) const {
  std::vector<int> offsets{0};
  for (auto [axis, degree] : axes_) {
    if (!axes.contains(axis)) continue;
    std::vector<int> finer;
    finer.reserve(offsets.size() * degree);
    for (int offset : offsets)
      for (int at = 0; at < degree; ++at) finer.push_back(offset + at * stride(axis));
    offsets = std::move(finer);
  }
  return offsets;
}

std::vector<int> Grid::group_of(int rank, AxisSet axes, const std::vector<int>& offsets) const {
  int first_cell = cell_of(rank);
  for (Axis axis : axes) first_cell -= coord(rank, axis) * stride(axis);
  std::vector<int> ranks;
  ranks.reserve(offsets.size());
  for (int offset : offsets) ranks.push_back(rank_of_cell_[first_cell + offset]);
  return ranks;
}

std::vector<int> Grid::peers(int rank, AxisSet axes) const { return group_of(rank, axes, cell_offsets(axes)); }

std::vector<std::vector<int>> Grid::groups(AxisSet axes) const {
  const std::vector<int> offsets = cell_offsets(axes);
  std::vector<bool> grouped(rank_of_cell_.size());
  std::vector<std::vector<int>> all;
  for (int rank = 0; rank < size(); ++rank) {
    if (grouped[rank]) continue;
    all.push_back(group_of(rank, axes, offsets));
    for (int member : all.back()) grouped[member] = true;
  }
  return all;
}

std::string Grid::str() const {
  std::string joined;
  for (auto [axis, degree] : axes_) joined += text(joined.empty() ? "" : " ", name(axis), "=", degree);
  return joined;
}

Grid expert_view(const Grid& dense, int ep, int expert_tp) {
  const int tp = dense.degree(Axis::tp), pp = dense.degree(Axis::pp);
  if (expert_tp == 0) expert_tp = tp;
  check_at_least_one("ep", ep);
  check_at_least_one("expert_tp", expert_tp);
  require<ConfigError>(dense.degree(kDenseAxes) == dense.size(), "grid ", dense.str(),
                       ": experts are a view of a grid of pp, dp, cp and tp");
  require<ConfigError>(tp % expert_tp == 0, "parallelism.expert_tp = ", expert_tp, ": must divide tp = ", tp);
  const int stage_size = dense.size() / pp, places = stage_size / expert_tp;
  require<ConfigError>(places % ep == 0, "parallelism.ep = ", ep, ": must divide dp x cp x tp / expert_tp = ", places,
                       " (dp = ", dense.degree(Axis::dp), ", cp = ", dense.degree(Axis::cp), ", tp = ", tp,
                       ", expert_tp = ", expert_tp, ")");

  std::vector<int> rank_of_cell(dense.size());
  for (int rank = 0; rank < dense.size(); ++rank) {
    int q = 0;
    for (auto [axis, degree] : dense.axes())
      if (axis == Axis::dp || axis == Axis::cp) q = q * degree + dense.coord(rank, axis);
    const int j = q * tp + dense.coord(rank, Axis::tp);  // row-major in (edp, ep, etp) by definition
    rank_of_cell[dense.coord(rank, Axis::pp) * stage_size + j] = rank;
  }
  return Grid({{Axis::pp, pp}, {Axis::edp, places / ep}, {Axis::ep, ep}, {Axis::tp, expert_tp}},
              std::move(rank_of_cell));
}

}  // namespace trireme
