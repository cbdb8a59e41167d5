#pragma once
// Byte-pair encoding (BPE): the merge table and its application to a word.
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/data/tokenizer/pair_table.hpp"
#include "trireme/data/tokens/token_id.hpp"

namespace trireme::data {

/// Merges `left` followed by `right` into `made`.
struct Merge {
  TokenId left = 0, right = 0, made = 0;
};

/// All merges of a tokenizer. Lower ranks are applied first.
class MergeTable {
 public:
  using Found = PairTable::Found;
  static constexpr std::uint32_t kNone = PairTable::kNone;

  MergeTable() = default;
  /// `ranks[i]` belongs to `merges[i]`. For a duplicate pair the last one counts, as in the reference.
  MergeTable(std::span<const Merge> merges, std::span<const std::uint32_t> ranks);

  /// rank = kNone if there is no merge for the pair.
  Found find(TokenId left, TokenId right) const { return pairs_.find(left, right); }
  std::size_t size() const { return pairs_.size(); }

  /// Applies merges to `symbols`, lowest rank first, leftmost first among equals, until none applies.
  void apply(std::vector<TokenId>& symbols) const;

 private:
  void apply_short(std::vector<TokenId>& symbols) const;
  void apply_long(std::vector<TokenId>& symbols) const;

  PairTable pairs_;
};

}  // namespace trireme::data
