#include "trireme/layout/context_split.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "trireme/base/error.hpp"

namespace trireme {

ContextMethod parse_context_method(const std::string& name) {
  constexpr std::array<const char*, 5> kNames{"ring", "ring-contiguous", "all-gather", "ulysses", "ulysses-ring"};
  const auto at = std::ranges::find(kNames, name);
  require<ConfigError>(at != kNames.end(), "parallelism.cp_method = \"", name,
                       "\": must be ring, ring-contiguous, all-gather, ulysses or ulysses-ring");
  return static_cast<ContextMethod>(at - kNames.begin());
}

std::int64_t ContextSplit::divisor() const {
  const bool halves = order() == CpSplit::zigzag && ring() > 1;
  return ring() * std::lcm(halves ? 2 : 1, ulysses);
}

std::vector<Range> ContextSplit::tokens_of_group(std::int64_t seq_len, int group) const {
  return tokens_over_cp(seq_len, ring(), group, order());
}

std::vector<Range> ContextSplit::tokens(std::int64_t seq_len, int cp_rank) const {
  require<ConfigError>(cp >= 1 && ulysses >= 1 && cp % ulysses == 0, "parallelism.cp = ", cp, " in groups of ", ulysses,
                       ": must be a multiple");
  require<ConfigError>(0 <= cp_rank && cp_rank < cp, "cp rank ", cp_rank, ": cp = ", cp, " has ranks 0 to ", cp - 1);
  const std::vector<Range> group = tokens_of_group(seq_len, cp_rank / ulysses);
  require<ConfigError>(seq_len % cp == 0, "seq_len = ", seq_len, " is not divisible by cp = ", cp,
                       "\n  fix: a multiple of it, such as ", (seq_len / cp + 1) * cp);
  const std::int64_t length = seq_len / cp, first = cp_rank % ulysses * length;
  return positions_of(group, {first, first + length});
}

ContextSplit context_split(ContextMethod method, int cp, std::int64_t kv_heads) {
  ContextSplit split{.cp = cp, .method = method};
  if (method == ContextMethod::ulysses) split.ulysses = cp;
  if (method == ContextMethod::ulysses_ring) split.ulysses = static_cast<int>(std::gcd<std::int64_t>(cp, kv_heads));
  return split;
}

// Note [Parts of the zig-zag split]: group i has parts i and 2n - 1 - i of the sequence, n groups in all. An earlier
// group's first part lies before both parts of mine and its second part after both; a later group's two parts lie
// between mine. So it is all of my queries with the first half of an earlier group's keys, or the second half of my
// queries with all keys of a later group: the same work for every pair of groups.
std::optional<AttentionPart> attention_part(CpSplit order, std::int64_t length, int mine, int other) {
  const Range all{0, length};
  if (mine == other) return AttentionPart{all, all, true};
  if (order == CpSplit::contiguous) return other < mine ? std::optional(AttentionPart{all, all}) : std::nullopt;
  return other < mine ? AttentionPart{all, {0, length / 2}} : AttentionPart{{length / 2, length}, all};
}

namespace {

/// A run of consecutive positions among the tokens of a group: the first one's index.
struct Run {
  Range positions;
  std::int64_t first = 0;

  Range indices(Range part) const { return {first + part.begin - positions.begin, first + part.end - positions.begin}; }
};

std::vector<Run> runs_of(const RingTokens& tokens, int group) {
  std::vector<Run> runs;
  std::int64_t first = 0;
  for (const Range& positions : tokens_over_cp(tokens.whole_length, tokens.groups, group, tokens.order)) {
    runs.push_back({positions, first});
    first += positions.size();
  }
  return runs;
}

/// The documents of a sample that have tokens in `positions`, cut to them.
std::vector<Range> documents_in(const std::vector<std::int64_t>& begins, std::int64_t whole_length, Range positions) {
  std::vector<Range> out;
  auto at = std::ranges::upper_bound(begins, positions.begin);
  for (std::int64_t begin = positions.begin; begin < positions.end; ++at) {
    const std::int64_t end = std::min(positions.end, at == begins.end() ? whole_length : *at);
    out.push_back({begin, end});
    if (at == begins.end()) break;
    begin = end;
  }
  return out;
}

/// For keys that all come before the queries. Documents are contiguous, so at most one of them reaches over both.
std::optional<AttentionRectangle> crossing(const RingTokens& tokens, std::int64_t sample, const Run& q, const Run& k) {
  const std::vector<std::int64_t>& begins = tokens.document_begins[static_cast<std::size_t>(sample)];
  const auto next = std::ranges::upper_bound(begins, q.positions.begin);
  Range queries = q.positions, keys = k.positions;
  keys.begin = std::max(keys.begin, *std::prev(next));
  if (next != begins.end()) queries.end = std::min(queries.end, *next);
  if (tokens.window > 0) {
    keys.begin = std::max(keys.begin, queries.begin - tokens.window + 1);
    queries.end = std::min(queries.end, keys.end - 1 + tokens.window);
  }
  if (keys.begin >= keys.end || queries.begin >= queries.end) return std::nullopt;
  AttentionRectangle out{sample, q.indices(queries), k.indices(keys)};
  // The last query's first key, from its diagonal at the last key.
  if (tokens.window > 0) out.left = keys.end - queries.end + tokens.window - 1;
  return out;
}

}  // namespace

std::vector<std::vector<AttentionRectangle>> attention_rectangles(const RingTokens& tokens, int mine, int other) {
  std::vector<AttentionRectangle> diagonal;
  std::vector<std::vector<AttentionRectangle>> out;
  const auto samples = static_cast<std::int64_t>(tokens.document_begins.size());
  for (const Run& k : runs_of(tokens, other)) {
    std::vector<AttentionRectangle> before;  // sorted by their windows
    for (const Run& q : runs_of(tokens, mine))
      for (std::int64_t sample = 0; sample < samples; ++sample) {
        if (q.positions == k.positions) {
          const auto& begins = tokens.document_begins[static_cast<std::size_t>(sample)];
          for (const Range& document : documents_in(begins, tokens.whole_length, q.positions))
            diagonal.push_back({sample, q.indices(document), k.indices(document), true, tokens.window - 1});
        } else if (k.positions.end <= q.positions.begin) {
          if (const auto found = crossing(tokens, sample, q, k)) before.push_back(*found);
        }
      }
    std::ranges::stable_sort(before, {}, &AttentionRectangle::left);
    for (const AttentionRectangle& one : before) {
      if (out.empty() || &one == before.data() || out.back().front().left != one.left) out.emplace_back();
      out.back().push_back(one);
    }
  }
  if (!diagonal.empty()) out.insert(out.begin(), std::move(diagonal));
  return out;
}

std::vector<Range> positions_of(const std::vector<Range>& tokens, Range range) {
  std::vector<Range> out;
  std::int64_t before = 0;  // tokens of the list so far
  for (const Range& tokens_here : tokens) {
    const std::int64_t begin = std::max(range.begin - before, std::int64_t{0}),
                       end = std::min(range.end - before, tokens_here.size());
    if (begin < end) out.push_back({tokens_here.begin + begin, tokens_here.begin + end});
    before += tokens_here.size();
  }
  return out;
}

}  // namespace trireme
