// A layer of experts over ranks: the two views of the ranks, and the way of tokens to their experts and back.
#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "tools/figures/figures.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/config/schema/dense_grid.hpp"
#include "trireme/describe/parameters.hpp"
#include "trireme/layout/param_layout.hpp"

namespace trireme::figures {
namespace {

constexpr const char* kExpertModel = "mixtral-8x7b";
constexpr std::int64_t kTokensOfASample = 4;
constexpr double kGutter = 112, kColumn = (kPageWidth - kGutter - 12) / 4, kCell = 22;

const char* expert_colour(int rank) { return kRankColours[static_cast<std::size_t>(rank)]; }
double column_middle(int rank) { return kGutter + kColumn * (rank + 0.5); }

/// The ranks, their two views, and which experts each has.
struct ExpertLayout {
  Config config;
  ParamLayout layout;
  ParamSpec experts, dense;

  const Grid& grid(View view) const { return layout.grid(view); }
  Range experts_of(int rank) const { return box_of(layout.pieces(experts, rank).at(0).slices.global_slices).at(0); }
};

ExpertLayout expert_layout() {
  Config config = config_of_preset(
      kExpertModel, {"parallelism.dp = 2", "parallelism.tp = 2", "parallelism.ep = 4", "parallelism.expert_tp = 1"});
  const ModelConfig& m = config.model;
  ParamSpec experts{.shape = {m.num_local_experts, m.hidden_size, m.intermediate_size},
                    .placement = parameter_named(m, "layers.0.mlp.expert_down").spec.placement};
  ParamSpec dense{.shape = {m.hidden_size, m.num_attention_heads * m.head_dim},
                  .placement = parameter_named(m, "layers.0.attention.out.weight").spec.placement};
  ParamLayout layout(config::dense_grid(config.parallelism), config::expert_grid(m, config.parallelism));
  return {std::move(config), std::move(layout), std::move(experts), std::move(dense)};
}

/// A token, where it is, and its experts.
struct RoutedToken {
  std::string name;
  int rank = 0;
  double x = 0;
  std::vector<std::int64_t> experts;  // ascending
};

/// The k experts with the best scores, which are random here.
std::vector<std::int64_t> best_experts(const ModelConfig& model, std::uint64_t token) {
  const RandomStream scores(14, "figure of experts");
  std::vector<std::int64_t> order(static_cast<std::size_t>(model.num_local_experts));
  std::iota(order.begin(), order.end(), 0);
  const auto score = [&](std::int64_t expert) {
    return scores.bits(token * order.size() + static_cast<std::uint64_t>(expert));
  };
  std::ranges::sort(order, [&](std::int64_t a, std::int64_t b) { return score(a) > score(b); });
  order.resize(static_cast<std::size_t>(model.num_experts_per_tok));
  std::ranges::sort(order);
  return order;
}

/// Those of dp's samples, split over tp: an expert is not split over it, so no two ranks may send the same token.
std::vector<RoutedToken> routed_tokens(const ExpertLayout& of) {
  const Grid& grid = of.grid(View::dense);
  const std::int64_t each = kTokensOfASample / grid.degree(Axis::tp);
  std::vector<RoutedToken> tokens;
  for (int rank = 0; rank < grid.size(); ++rank) {
    const std::int64_t place = grid.coord(rank, Axis::tp);
    const Range mine{place * each, (place + 1) * each};
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const double x = column_middle(rank) + (static_cast<double>(i - mine.begin) - (mine.size() - 1) / 2.0) * 46;
      const char sample = static_cast<char>('A' + grid.coord(rank, Axis::dp));
      tokens.push_back({text(sample, i), rank, x, best_experts(of.config.model, tokens.size())});
    }
  }
  return tokens;
}

void draw_token(Drawing& out, Point middle, const RoutedToken& token) {
  out.rect(middle.x - kCell / 2, middle.y - kCell / 2, kCell, kCell,
           {.fill = expert_colour(token.rank), .stroke = "white", .radius = 3});
  out.label({middle.x, middle.y + 4}, token.name, {.size = 11, .anchor = Anchor::middle});
}

void row_title(Drawing& out, double y, const char* title, const std::string& words) {
  out.label({14, y}, title, {.bold = true});
  if (!words.empty()) out.label({14, y + 15}, words, {.size = 11, .colour = kDimInk});
}

std::string groups_text(const std::vector<std::vector<int>>& groups, int rank) {
  for (const std::vector<int>& group : groups)
    if (std::ranges::find(group, rank) != group.end()) {
      std::string ranks;
      for (const int member : group) ranks += text(ranks.empty() ? "" : ", ", member);
      return group.size() == 1 ? text("gradient: not summed") : text("gradient: sum over ", ranks);
    }
  return "";
}

/// Two rows of a table: the coordinates of each rank in a view, what it has of a parameter, who sums its gradient.
void draw_view(Drawing& out, double y, const ExpertLayout& of, View view) {
  const Grid& grid = of.grid(view);
  const ParamSpec& spec = view == View::dense ? of.dense : of.experts;
  const auto groups = grid.groups(of.layout.sum_axes(spec));
  row_title(out, y + 16, view == View::dense ? "dense grid" : "expert grid",
            view == View::dense ? "attention, norms" : "experts");
  for (int rank = 0; rank < grid.size(); ++rank) {
    const double x = kGutter + kColumn * rank;
    out.rect(x + 3, y, kColumn - 6, 52, {.fill = "white", .stroke = kFaint, .radius = 4});
    std::string coords, has;
    for (const auto& [axis, degree] : grid.axes())
      if (degree > 1 || axis == Axis::edp)
        coords += text(coords.empty() ? "" : " · ", name(axis), " ", grid.coord(rank, axis));
    if (view == View::dense) {
      const Range part = box_of(of.layout.pieces(spec, rank).at(0).slices.global_slices).at(1);
      has = text("W_out[:, ", part.begin, ":", part.end, "]");
    } else {
      const Range part = of.experts_of(rank);
      for (std::int64_t expert = part.begin; expert < part.end; ++expert)
        has += text(has.empty() ? "experts " : ", ", expert);
    }
    const double middle = column_middle(rank);
    out.label({middle, y + 15}, coords, {.anchor = Anchor::middle, .bold = true});
    out.label({middle, y + 30}, has, {.size = 11, .anchor = Anchor::middle});
    out.label({middle, y + 45}, groups_text(groups, rank), {.size = 11, .anchor = Anchor::middle, .colour = kDimInk});
  }
}

}  // namespace

Drawing draw_expert() {
  const ExpertLayout of = expert_layout();
  const ModelConfig& model = of.config.model;
  const std::vector<RoutedToken> tokens = routed_tokens(of);
  constexpr double kHeadRow = 66, kDense = 76, kExpert = 138, kTokenRow = 232, kRouter = 256, kDispatch = 284,
                   kBox = 364, kBoxHeight = 62, kCombine = kBox + kBoxHeight, kOutput = kCombine + 98;

  Drawing out(
      kOutput + 40,
      "Tokens are sent to the ranks of their experts and back; the same ranks in the dense and in the expert grid");
  out.label({14, 26},
            text(kExpertModel, ": ", model.num_local_experts, " experts, ", model.num_experts_per_tok,
                 " per token, on ", of.grid(View::dense).size(), " ranks (dp 2, tp 2, ep 4, expert_tp 1)"),
            {.size = 16, .bold = true});
  for (int rank = 0; rank < of.grid(View::dense).size(); ++rank) {
    out.rect(column_middle(rank) - 40, kHeadRow - 19, 80, 22, {.fill = expert_colour(rank), .radius = 4});
    out.label({column_middle(rank), kHeadRow - 4}, text("rank ", rank), {.anchor = Anchor::middle, .bold = true});
  }
  draw_view(out, kDense, of, View::dense);
  draw_view(out, kExpert, of, View::expert);

  row_title(out, kTokenRow + 1, "tokens", "split over dp, tp");
  row_title(out, kRouter + 18, "router", text("best ", model.num_experts_per_tok, " of ", model.num_local_experts));
  row_title(out, (kDispatch + kBox) / 2 + 6, "dispatch", "all_to_all over ep");
  row_title(out, kBox + 28, "experts", "rows by expert");
  row_title(out, kCombine + 36, "combine", "all_to_all back");
  row_title(out, kOutput + 1, "output", "weighted sum");

  // The rows that an expert gets, in the order of the ranks that send them.
  std::vector<std::vector<std::size_t>> rows(static_cast<std::size_t>(model.num_local_experts));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    for (const std::int64_t expert : tokens[i].experts) rows[static_cast<std::size_t>(expert)].push_back(i);
  for (int rank = 0; rank < of.grid(View::expert).size(); ++rank) {
    const Range mine = of.experts_of(rank);
    const double share = (kColumn - 6) / static_cast<double>(mine.size());
    for (std::int64_t expert = mine.begin; expert < mine.end; ++expert) {
      const double left = kGutter + kColumn * rank + 3 + share * static_cast<double>(expert - mine.begin);
      const std::vector<std::size_t>& here = rows[static_cast<std::size_t>(expert)];
      const double middle = left + share / 2;
      for (std::size_t n = 0; n < here.size(); ++n) {
        const RoutedToken& token = tokens[here[n]];
        const double x = middle + (static_cast<double>(n) - (static_cast<double>(here.size()) - 1) / 2) * (kCell + 1);
        const ShapeLook look{.stroke = expert_colour(token.rank), .stroke_width = 1.6, .opacity = 0.85};
        out.curve({token.x, kDispatch}, {x, kBox}, look);
        out.curve({x, kCombine}, {token.x, kOutput - kCell / 2}, look);
      }
      out.rect(left + 2, kBox, share - 4, kBoxHeight, {.fill = "#f6f8fa", .stroke = kDimInk, .radius = 4});
      out.label({middle, kBox + 18}, text("expert ", expert), {.size = 11, .anchor = Anchor::middle});
      for (std::size_t n = 0; n < here.size(); ++n) {
        const double x = middle + (static_cast<double>(n) - (static_cast<double>(here.size()) - 1) / 2) * (kCell + 1);
        draw_token(out, {x, kBox + 41}, tokens[here[n]]);
      }
      if (here.empty())
        out.label({middle, kBox + 45}, "no tokens", {.size = 11, .anchor = Anchor::middle, .colour = kDimInk});
    }
  }
  for (const RoutedToken& token : tokens) {
    out.line({token.x, kTokenRow}, {token.x, kRouter}, {.stroke = expert_colour(token.rank), .stroke_width = 1.6});
    draw_token(out, {token.x, kTokenRow - 2}, token);
    draw_token(out, {token.x, kOutput}, token);
  }
  for (int rank = 0; rank < of.grid(View::dense).size(); ++rank) {
    out.rect(column_middle(rank) - 52, kRouter, 104, kDispatch - kRouter,
             {.fill = "#f6e8c3", .stroke = "#bf9b4b", .radius = 4});
  }
  for (const RoutedToken& token : tokens) {
    std::string chosen;
    for (const std::int64_t expert : token.experts) chosen += text(chosen.empty() ? "" : ", ", expert);
    out.label({token.x, kRouter + 18}, chosen, {.anchor = Anchor::middle});
  }
  return out;
}

}  // namespace trireme::figures
