#pragma once
// Context parallelism: which tokens of a sample a cp rank has, and which keys of another rank its queries attend to.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/layout/split.hpp"

namespace trireme {

/// How attention crosses the parts of a sample.
enum class ContextMethod {
  ring,             // K and V travel round the ring of ranks; zig-zag split
  ring_contiguous,  // the same with a contiguous split, whose last rank has the most work
  all_gather,       // every rank gathers all K and V; zig-zag split
  ulysses,          // ranks exchange tokens for heads, and each computes whole samples for some heads
  ulysses_ring,     // groups of ranks exchange tokens for heads, and form a ring of groups
};
/// "ring", "ring-contiguous", ...: of parallelism.cp_method.
ContextMethod parse_context_method(const std::string& name);

/// cp ranks = `ring` groups of `ulysses` neighbouring ranks each.
struct ContextSplit {
  int cp = 1;
  ContextMethod method = ContextMethod::ring;
  int ulysses = 1;

  int ring() const { return cp / ulysses; }
  CpSplit order() const { return method == ContextMethod::ring_contiguous ? CpSplit::contiguous : CpSplit::zigzag; }
  /// What seq_len must be divisible by.
  std::int64_t divisor() const;

  /// The positions of the tokens of a group of the ring, ascending.
  std::vector<Range> tokens_of_group(std::int64_t seq_len, int group) const;
  /// Those of a cp rank: its part of its group's.
  std::vector<Range> tokens(std::int64_t seq_len, int cp_rank) const;

  bool operator==(const ContextSplit&) const = default;
};

/// `kv_heads`: on a rank of tp. ulysses_ring exchanges as many ranks' tokens as need no copies of KV heads.
ContextSplit context_split(ContextMethod method, int cp, std::int64_t kv_heads);

/// A rectangle of the (query, key) pairs between the tokens of two groups of the ring, given as indices of their
/// tokens. Causal: only pairs with key <= query. Outside of it no query attends to a key.
struct AttentionPart {
  Range queries, keys;
  bool causal = false;
  bool operator==(const AttentionPart&) const = default;
};

/// For queries of group `mine` and keys of group `other`, of `length` tokens each; none: all keys come later.
std::optional<AttentionPart> attention_part(CpSplit order, std::int64_t length, int mine, int other);

/// A rectangle of the (query, key) pairs of one sample, all within one document, given as indices of the tokens of two
/// groups of the ring.
struct AttentionRectangle {
  std::int64_t sample = 0;
  Range queries, keys;
  /// Queries and keys are the same tokens, and a query attends to keys up to itself. Else all keys come before.
  bool causal = false;
  /// A query attends to this many keys before the one on its diagonal, where the last query's diagonal is at the last
  /// key; -1: to all.
  std::int64_t left = -1;
  bool operator==(const AttentionRectangle&) const = default;
};

/// The tokens of the samples that attention between groups of a ring is about.
struct RingTokens {
  CpSplit order = CpSplit::zigzag;
  std::int64_t whole_length = 0;  // of a sample, over all groups
  int groups = 1;
  std::int64_t window = 0;  // a token attends to this many tokens, including itself; 0: all before it
  /// Of each sample: where its documents begin, ascending from 0.
  std::vector<std::vector<std::int64_t>> document_begins = {};
};

/// All pairs in which a query of group `mine` attends to a key of group `other`, each once. Rectangles with the same
/// `causal` and `left` whose keys are in the same part of the other group's tokens have different queries; they are
/// next to each other in the list of lists.
std::vector<std::vector<AttentionRectangle>> attention_rectangles(const RingTokens& tokens, int mine, int other);

/// Indices [range.begin, range.end) of the list of these positions, as positions.
std::vector<Range> positions_of(const std::vector<Range>& tokens, Range range);

}  // namespace trireme
