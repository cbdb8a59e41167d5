#pragma once
// Byte-pair encoding (BPE): the merge table and its application to a word.
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/data/tokenizer/huge_pages.hpp"
#include "trireme/data/tokens/token_id.hpp"

namespace trireme::data {

/// Merges `left` followed by `right` into `made`.
struct Merge {
  TokenId left = 0, right = 0, made = 0;
};

/// All merges of a tokenizer. Lower ranks are applied first.
class MergeTable {
 public:
  struct Found {
    std::uint32_t rank = kNone;
    TokenId made = 0;
  };
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  MergeTable() = default;
  /// `ranks[i]` belongs to `merges[i]`. For a duplicate pair the last one counts, as in the reference.
  MergeTable(std::span<const Merge> merges, std::span<const std::uint32_t> ranks);

  /// rank = kNone if there is no merge for the pair.
  Found find(TokenId left, TokenId right) const {
    const std::uint64_t key = std::uint64_t{left} << 32 | right;
    for (std::size_t at = slot(key);; at = (at + 1) & mask_) {
      const Entry& entry = entries_[at];
      if (entry.key == key) return {entry.rank, entry.made};
      if (entry.key == kEmpty) return {};
    }
  }
  std::size_t size() const { return size_; }

  /// Applies merges to `symbols`, lowest rank first, leftmost first among equals, until none applies.
  void apply(std::vector<TokenId>& symbols) const;

 private:
  struct Entry {
    std::uint64_t key = kEmpty;
    std::uint32_t rank = kNone;
    TokenId made = 0;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // the token 2^32 - 1 does not exist

  std::size_t slot(std::uint64_t key) const { return (key * 0x9E3779B97F4A7C15) >> shift_; }
  void apply_short(std::vector<TokenId>& symbols) const;
  void apply_long(std::vector<TokenId>& symbols) const;

  HugeVector<Entry> entries_ = HugeVector<Entry>(2);
  std::size_t mask_ = 1, size_ = 0;
  int shift_ = 63;
};

}  // namespace trireme::data
