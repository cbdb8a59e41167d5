// Causal attention over cp ranks: the (query, key) pairs of each rank, its work, and the rounds of the ring, for the
// zig-zag and the contiguous split.
#include <algorithm>
#include <string>
#include <vector>

#include "tools/figures/figures.hpp"
#include "trireme/base/error.hpp"
#include "trireme/layout/context_split.hpp"

namespace trireme::figures {
namespace {

constexpr int kContextRanks = 4;
constexpr std::int64_t kSequence = 32;
constexpr double kToken = 8, kMatrix = kToken * static_cast<double>(kSequence), kStrip = 14;

double at_token(std::int64_t position) { return kToken * static_cast<double>(position); }
const char* context_colour(int rank) { return kRankColours[static_cast<std::size_t>(rank)]; }

/// Rows are queries, columns keys; a rank's pairs in its colour. The strips say which rank has a token.
void draw_pairs(Drawing& out, Point corner, const ContextSplit& split) {
  for (int rank = 0; rank < split.cp; ++rank)
    for (const Range& range : split.tokens(kSequence, rank)) {
      const double begin = at_token(range.begin), size = at_token(range.size());
      const ShapeLook look{.fill = context_colour(rank), .stroke = "white"};
      out.rect(corner.x - kStrip - 4, corner.y + begin, kStrip, size, look);
      out.rect(corner.x + begin, corner.y - kStrip - 4, size, kStrip, look);
      const std::string name = text(rank);
      out.label({corner.x - kStrip / 2 - 4, corner.y + begin + size / 2 + 4}, name,
                {.size = 11, .anchor = Anchor::middle});
      out.label({corner.x + begin + size / 2, corner.y - kStrip / 2}, name, {.size = 11, .anchor = Anchor::middle});
      // One step down and to the right per query: it attends to the keys up to itself.
      std::vector<Point> stairs = {{corner.x, corner.y + begin}};
      for (std::int64_t query = range.begin; query < range.end; ++query)
        for (const std::int64_t side : {query, query + 1})
          stairs.push_back({corner.x + at_token(query + 1), corner.y + at_token(side)});
      stairs.push_back({corner.x, corner.y + at_token(range.end)});
      out.polygon(stairs, {.fill = context_colour(rank)});
    }
  for (std::int64_t i = 0; i <= kSequence; i += kSequence / (2 * kContextRanks)) {
    out.line({corner.x, corner.y + at_token(i)}, {corner.x + kMatrix, corner.y + at_token(i)}, {.stroke = kFaint});
    out.line({corner.x + at_token(i), corner.y}, {corner.x + at_token(i), corner.y + kMatrix}, {.stroke = kFaint});
  }
  out.label({corner.x + kMatrix / 2, corner.y - kStrip - 10}, "keys", {.size = 11, .anchor = Anchor::middle});
  out.label({corner.x - kStrip - 10, corner.y + kMatrix / 2}, "queries",
            {.size = 11, .anchor = Anchor::middle, .upwards = true});
}

void draw_work(Drawing& out, Point corner, const ContextSplit& split, double pixels_per_pair) {
  for (int rank = 0; rank < split.cp; ++rank) {
    const double y = corner.y + 20 * rank;
    const std::int64_t pairs = causal_work(split.tokens(kSequence, rank));
    const double width = static_cast<double>(pairs) * pixels_per_pair;
    out.label({corner.x - 6, y + 12}, text("rank ", rank), {.size = 11, .anchor = Anchor::end});
    out.rect(corner.x, y, width, 15, {.fill = context_colour(rank)});
    out.label({corner.x + width + 6, y + 12}, text(pairs, " pairs"), {.size = 11});
  }
}

/// Rank by rank what is computed after each message: keys of which rank, and which of the pairs.
void draw_rounds(Drawing& out, Point corner, const ContextSplit& split) {
  constexpr double kSquare = 44, kStepX = 66, kStepY = 66;
  const std::int64_t length = kSequence / split.cp;
  const double pixels = kSquare / static_cast<double>(length);
  for (int round = 0; round < split.cp; ++round)
    out.label({corner.x + kStepX * round + kSquare / 2, corner.y - 8}, text("round ", round),
              {.size = 11, .anchor = Anchor::middle});
  for (int rank = 0; rank < split.cp; ++rank) {
    const double y = corner.y + kStepY * rank;
    out.label({corner.x - 8, y + kSquare / 2 + 4}, text("rank ", rank), {.size = 11, .anchor = Anchor::end});
    for (int round = 0; round < split.cp; ++round) {
      const int other = (rank - round + split.cp) % split.cp;
      const double x = corner.x + kStepX * round;
      out.rect(x, y, kSquare, kSquare, {.fill = kIdle});
      const auto part = attention_part(split.order(), length, rank, other);
      out.label({x + kSquare / 2, y + kSquare + 13}, part ? text("keys of ", other) : std::string("idle"),
                {.size = 11, .anchor = Anchor::middle, .colour = kDimInk});
      if (!part) continue;
      const auto place = [&](std::int64_t key, std::int64_t query) {
        return Point{x + static_cast<double>(key) * pixels, y + static_cast<double>(query) * pixels};
      };
      std::vector<Point> corners = {place(part->keys.begin, part->queries.begin)};
      if (!part->causal) corners.push_back(place(part->keys.end, part->queries.begin));
      corners.push_back(place(part->keys.end, part->queries.end));
      corners.push_back(place(part->keys.begin, part->queries.end));
      out.polygon(corners, {.fill = context_colour(rank)});
    }
  }
}

}  // namespace

Drawing draw_context() {
  constexpr double kPairsTop = 112, kWorkTop = kPairsTop + kMatrix + 34, kRoundsTop = kWorkTop + 140;
  Drawing out(
      kRoundsTop + 282,
      "The causal attention of each of four ranks with the zig-zag and with the contiguous split of the sequence");
  out.label({14, 26}, text("Causal attention of ", kSequence, " tokens on cp = ", kContextRanks, " ranks"),
            {.size = 16, .bold = true});
  out.label({14, 46},
            "A pair (query, key) is computed by the rank that has the query; the strips show who has which tokens.",
            {.colour = kDimInk});
  std::int64_t most = 0;
  const std::vector<const char*> names = {"ring", "ring-contiguous"};
  std::vector<ContextSplit> splits;
  for (const char* name : names) {
    splits.push_back(context_split(parse_context_method(name), kContextRanks, 1));
    for (int rank = 0; rank < kContextRanks; ++rank)
      most = std::max(most, causal_work(splits.back().tokens(kSequence, rank)));
  }
  for (std::size_t i = 0; i < splits.size(); ++i) {
    const double x = 60 + 376 * static_cast<double>(i);
    const bool is_zigzag = splits[i].order() == CpSplit::zigzag;
    out.label({x - 46, 72}, text(names[i], is_zigzag ? ": zig-zag split (default)" : ": one part per rank"),
              {.size = 13, .bold = true});
    draw_pairs(out, {x, kPairsTop}, splits[i]);
    out.label({x - 46, kWorkTop - 12}, "work per rank", {.bold = true});
    draw_work(out, {x, kWorkTop}, splits[i], (kMatrix - 56) / static_cast<double>(most));
    out.label({x - 46, kRoundsTop - 30}, "the ring: rank i has the keys of rank i - j in round j", {.bold = true});
    draw_rounds(out, {x, kRoundsTop}, splits[i]);
  }
  return out;
}

}  // namespace trireme::figures
