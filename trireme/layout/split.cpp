#include "trireme/layout/split.hpp"

#include <algorithm>
#include <limits>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kMaxSeqLen = std::int64_t{1} << 31;  // its square fits in 64 bits
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Costs within this relative tolerance are equal: they are sums of the same numbers in a different order.
constexpr double kRounding = 1e-12;

class LayerSplit {
 public:
  LayerSplit(const std::vector<double>& costs, int num_chunks, double first_cost, double last_cost)
      : costs_(costs),
        num_layers_(static_cast<int>(costs.size())),
        num_chunks_(num_chunks),
        first_cost_(first_cost),
        last_cost_(last_cost) {}

  /// The minimum over all splits of the largest chunk cost.
  double smallest_maximum() const {
    return solve([](double cost, double rest) { return std::max(cost, rest); }).front().front();
  }

  /// The split with the smallest sum of squares among those in which no chunk costs more than `limit`.
  std::vector<Range> most_even(double limit) const {
    const auto add_square = [&](double cost, double rest) {
      return cost > limit * (1 + kRounding) ? kInfinity : cost * cost + rest;
    };
    const Table best = solve(add_square);
    std::vector<Range> chunks;
    int begin = 0;
    for (int chunk = 0; chunk < num_chunks_; ++chunk) {
      int end = 0;
      for_each_end(chunk, begin, [&](int candidate, double cost) {
        const double total = add_square(cost, best[chunk + 1][candidate]);
        if (end == 0 && total <= best[chunk][begin] * (1 + kRounding)) end = candidate;
      });
      chunks.push_back({begin, end});
      begin = end;
    }
    return chunks;
  }

 private:
  using Table = std::vector<std::vector<double>>;

  /// Dynamic programming: table[c][l] is the best `merge` of the costs of chunks c.. over all splits of layers l.. .
  template <class Merge>
  Table solve(Merge merge) const {
    Table table(num_chunks_ + 1, std::vector<double>(num_layers_ + 1, kInfinity));
    table[num_chunks_][num_layers_] = 0;
    for (int chunk = num_chunks_ - 1; chunk >= 0; --chunk)
      for (int begin = chunk; begin < num_layers_; ++begin)
        for_each_end(chunk, begin, [&](int end, double cost) {
          table[chunk][begin] = std::min(table[chunk][begin], merge(cost, table[chunk + 1][end]));
        });
    return table;
  }

  /// visit(end, cost of layers begin..end as this chunk), for each end that leaves a layer for every later chunk.
  template <class Visit>
  void for_each_end(int chunk, int begin, Visit visit) const {
    const bool first = chunk == 0, last = chunk == num_chunks_ - 1;
    double cost = (first ? first_cost_ : 0) + (last ? last_cost_ : 0);
    const int chunks_after = num_chunks_ - 1 - chunk;
    for (int end = begin + 1; end <= num_layers_ - chunks_after; ++end) {
      cost += costs_[end - 1];
      if (!last || end == num_layers_) visit(end, cost);
    }
  }

  const std::vector<double>& costs_;
  int num_layers_, num_chunks_;
  double first_cost_, last_cost_;
};

void check_cost(double cost) {
  require<ConfigError>(0 <= cost && cost <= 1e100, "cost ", cost, " of a layer: must be from 0 to 1e100");
}

}  // namespace

std::vector<Range> layers_over_stages(const std::vector<double>& costs, int num_chunks, double first_cost,
                                      double last_cost) {
  require<ConfigError>(num_chunks >= 1, "pipeline chunks = ", num_chunks, ": must be at least 1");
  require<ConfigError>(
      costs.size() >= static_cast<std::size_t>(num_chunks), costs.size(), " layers cannot fill ", num_chunks,
      " pipeline chunks: each needs a layer\n  fix: lower parallelism.pp or parallelism.virtual_stages");
  std::ranges::for_each(costs, check_cost);
  check_cost(first_cost);
  check_cost(last_cost);
  const LayerSplit split(costs, num_chunks, first_cost, last_cost);
  return split.most_even(split.smallest_maximum());
}

std::vector<Range> tokens_over_cp(std::int64_t seq_len, int cp, int cp_rank, CpSplit split) {
  require<ConfigError>(cp >= 1, "parallelism.cp = ", cp, ": must be at least 1");
  require<ConfigError>(0 <= cp_rank && cp_rank < cp, "cp rank ", cp_rank, ": cp = ", cp, " has ranks 0 to ", cp - 1);
  require<ConfigError>(0 <= seq_len && seq_len <= kMaxSeqLen, "seq_len = ", seq_len, ": must be from 0 to 2^31");
  if (cp == 1) return {{0, seq_len}};
  const bool zigzag = split == CpSplit::zigzag;
  const std::int64_t parts = zigzag ? std::int64_t{2} * cp : cp;
  require<ConfigError>(seq_len % parts == 0, "seq_len = ", seq_len, " is not divisible by ",
                       zigzag ? "2 x cp = " : "cp = ", parts, "\n  fix: a multiple of it, such as ",
                       (seq_len / parts + 1) * parts);
  const std::int64_t length = seq_len / parts;
  const auto part = [&](std::int64_t index) { return Range{index * length, (index + 1) * length}; };
  if (!zigzag) return {part(cp_rank)};
  return {part(cp_rank), part(parts - 1 - cp_rank)};
}

std::int64_t causal_work(const std::vector<Range>& queries) {
  const auto pairs_below = [](std::int64_t position) { return position * (position + 1) / 2; };
  std::int64_t pairs = 0;
  for (auto [begin, end] : queries) pairs += pairs_below(end) - pairs_below(begin);
  return pairs;
}

}  // namespace trireme
