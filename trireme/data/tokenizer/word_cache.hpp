#pragma once
// Cache from words to their tokens: most words of a text have occurred before.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/tokenizer/bpe.hpp"
#include "trireme/data/tokenizer/huge_pages.hpp"

namespace trireme::data {

/// Output buffer for tokens: a vector without a capacity check per token.
class TokenBuffer {
 public:
  /// Releases the memory after a very long text.
  void clear() {
    size_ = 0;
    if (tokens_.size() > kMostKept) tokens_ = std::vector<TokenId>(kAtFirst);
  }
  /// The write position, with room for `n` more tokens.
  TokenId* room(std::size_t n) {
    if (tokens_.size() - size_ < n) tokens_.resize(std::max(tokens_.size() * 2, size_ + n));
    return tokens_.data() + size_;
  }
  void took(std::size_t n) { size_ += n; }
  void append(std::span<const TokenId> ids) {
    std::ranges::copy(ids, room(ids.size()));
    took(ids.size());
  }
  std::span<const TokenId> tokens() const { return {tokens_.data(), size_}; }

 private:
  static constexpr std::size_t kAtFirst = 4096, kMostKept = std::size_t{1} << 20;
  std::vector<TokenId> tokens_ = std::vector<TokenId>(kAtFirst);
  std::size_t size_ = 0;
};

/// One per thread. Entries are overwritten, never freed: the number of entries is fixed for any text.
///
/// Words of up to 15 bytes with up to six tokens below 2^20 take an entry of 32 bytes, two per cache line; the others,
/// far fewer, go to a second table of strings.
class WordCache {
  struct Key {
    std::uint64_t low = 0, high = 0;  // the bytes; the last one is the length, so that no word is all zero
    bool operator==(const Key&) const = default;
  };

 public:
  TokenBuffer buffer;  // for the current text

  WordCache() : short_(std::size_t{1} << kPairBits), long_(std::size_t{1} << kLongBits) {}

  /// A pending lookup. Issuing several before the first result is used hides memory latency (prefetch).
  class Ticket {
   public:
    std::string_view word() const { return word_; }

   private:
    friend class WordCache;
    std::string_view word_;
    Key key_;
    std::size_t pair_ = 0;
  };

  /// `readable`: bytes that may be read from the beginning of `word`, for two loads instead of a loop.
  Ticket ask(std::string_view word, std::size_t readable) const {
    Ticket ticket;
    ticket.word_ = word;
    if (word.size() > kLongestShort || word.empty()) return ticket;
    ticket.key_ = key_of(word, readable);
    ticket.pair_ = hash(ticket.key_) >> (64 - kPairBits);
    __builtin_prefetch(&short_[ticket.pair_]);
    return ticket;
  }

  /// Appends the tokens of the word to `out`; on a miss `make(word, tokens)` computes them.
  template <class Make>
  void append(const Ticket& ticket, TokenBuffer& out, const Make& make) {
    if (ticket.word_.size() > kLongestShort || ticket.word_.empty()) return append_long(ticket.word_, out, make);
    auto& [newer, older] = short_[ticket.pair_];
    const Short* entry = &newer;
    if (!(newer.key == ticket.key_)) {
      if (older.key == ticket.key_) {
        entry = &older;
      } else {
        scratch_.clear();
        make(ticket.word_, scratch_);
        if (scratch_.size() > kMostIds || std::ranges::any_of(scratch_, [](TokenId id) { return id > kMaxId; }))
          return out.append(scratch_);
        older = newer;
        newer = packed(ticket.key_, scratch_);
      }
    }
    // All six are always written: a branch on their number would be mispredicted every few words.
    TokenId* to = out.room(kMostIds);
    for (int i = 0; i < 3; ++i) {
      to[i] = static_cast<TokenId>(entry->ids_low >> (kIdBits * i) & kMaxId);
      to[i + 3] = static_cast<TokenId>(entry->ids_high >> (kIdBits * i) & kMaxId);
    }
    out.took(entry->ids_high >> kCountShift);
  }

 private:
  static constexpr int kPairBits = 17, kLongBits = 15, kIdBits = 20, kCountShift = 60;
  static constexpr std::size_t kLongestShort = 15, kMostIds = 6;
  static constexpr std::uint64_t kMaxId = (std::uint64_t{1} << kIdBits) - 1;

  struct Short {
    Key key;
    std::uint64_t ids_low = 0, ids_high = 0;  // three ids each; their count in the last four bits
  };
  struct alignas(64) ShortPair {  // one cache line
    Short newer, older;
  };
  struct Long {
    std::string word;
    std::vector<TokenId> ids;
  };

  static Key key_of(std::string_view word, std::size_t readable) {
    Key key;
    const std::size_t n = word.size();
    if (readable >= 16) {
      std::memcpy(&key.low, word.data(), 8);
      std::memcpy(&key.high, word.data() + 8, 8);
      if (n < 8) {
        key.low &= (std::uint64_t{1} << (8 * n)) - 1;
        key.high = 0;
      } else {
        key.high &= (std::uint64_t{1} << (8 * (n - 8))) - 1;
      }
    } else {
      std::array<char, 16> bytes{};
      std::memcpy(bytes.data(), word.data(), n);
      std::memcpy(&key.low, bytes.data(), 8);
      std::memcpy(&key.high, bytes.data() + 8, 8);
    }
    key.high |= std::uint64_t{n} << 56;
    return key;
  }

  static std::uint64_t hash(const Key& key) {
    std::uint64_t h = (key.low ^ (key.high * 0x9E3779B97F4A7C15)) * 0xD6E8FEB86659FD93;
    return (h ^ h >> 32) * 0xD6E8FEB86659FD93;
  }

  static Short packed(const Key& key, const std::vector<TokenId>& ids) {
    std::array<std::uint64_t, kMostIds> slots{};
    std::ranges::copy(ids, slots.begin());
    return {key, slots[0] | slots[1] << kIdBits | slots[2] << (2 * kIdBits),
            slots[3] | slots[4] << kIdBits | slots[5] << (2 * kIdBits) | std::uint64_t{ids.size()} << kCountShift};
  }

  template <class Make>
  void append_long(std::string_view word, TokenBuffer& out, const Make& make) {
    constexpr std::size_t kLongest = 256;  // longer words rarely recur
    if (word.size() > kLongest || word.empty()) {
      scratch_.clear();
      make(word, scratch_);
      return out.append(scratch_);
    }
    Long& entry = long_[std::hash<std::string_view>{}(word) >> (64 - kLongBits)];
    if (entry.word != word) {
      entry.ids.clear();
      entry.word.clear();  // keeps the entry invalid if make() throws
      make(word, entry.ids);
      entry.word = word;
    }
    out.append(entry.ids);
  }

  HugeVector<ShortPair> short_;
  std::vector<Long> long_;
  std::vector<TokenId> scratch_;
};

}  // namespace trireme::data
