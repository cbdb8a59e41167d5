#pragma once
// Hash table from pairs of numbers to two numbers: merges of tokens, edges of a trie.
#include <bit>
#include <cstdint>

#include "trireme/data/tokenizer/huge_pages.hpp"

namespace trireme::data {

class PairTable {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  struct Found {
    std::uint32_t rank = kNone;
    std::uint32_t made = 0;
  };

  /// Room for `pairs` of them; more are allowed.
  explicit PairTable(std::size_t pairs = 0) { resize(pairs * 2); }

  /// The pair of 2^32 - 1 with itself is not allowed. Set twice, the last one counts.
  void set(std::uint32_t left, std::uint32_t right, Found found) {
    if (size_ * 2 >= entries_.size()) grow();
    Entry& entry = place(key_of(left, right));
    if (entry.key == kEmpty) ++size_;
    entry = {key_of(left, right), found};
  }

  /// rank = kNone and made = 0 if there is no such pair.
  Found find(std::uint32_t left, std::uint32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t at = slot(key);; at = (at + 1) & mask_) {
      const Entry& entry = entries_[at];
      if (entry.key == key) return entry.found;
      if (entry.key == kEmpty) return {};
    }
  }
  std::size_t size() const { return size_; }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  struct Entry {
    std::uint64_t key = kEmpty;
    Found found;
  };

  static std::uint64_t key_of(std::uint32_t left, std::uint32_t right) { return std::uint64_t{left} << 32 | right; }
  std::size_t slot(std::uint64_t key) const { return (key * 0x9E3779B97F4A7C15) >> shift_; }
  Entry& place(std::uint64_t key) {
    std::size_t at = slot(key);
    while (entries_[at].key != kEmpty && entries_[at].key != key) at = (at + 1) & mask_;
    return entries_[at];
  }
  void resize(std::size_t wanted) {
    const std::size_t slots = std::bit_ceil(wanted < 2 ? 2 : wanted);
    entries_.assign(slots, Entry{});
    mask_ = slots - 1;
    shift_ = 64 - std::countr_zero(slots);
  }
  void grow() {
    const HugeVector<Entry> old = std::move(entries_);
    resize(old.size() * 2);
    for (const Entry& entry : old)
      if (entry.key != kEmpty) place(entry.key) = entry;
  }

  HugeVector<Entry> entries_;
  std::size_t mask_ = 1, size_ = 0;
  int shift_ = 63;
};

}  // namespace trireme::data
