#pragma once
// What a word became last time: most words of a text have been seen before.
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/bpe.hpp"

namespace trireme {

/// One thread's. Entries are overwritten, never freed: the size is fixed, whatever the text.
///
/// Words of up to 15 bytes with up to six tokens below 2^20 are an entry of 32 bytes, two in a cache line; the others, far fewer, go to a
/// second table of strings.
class WordCache {
 public:
  WordCache() : short_(std::size_t{1} << kShortBits), long_(std::size_t{1} << kLongBits) {}

  /// Appends the tokens of `word` to `out`; `make(word, tokens)` finds those it does not know. `readable`: bytes that may be read from the
  /// beginning of `word`, for two loads instead of a loop.
  template <class Make>
  void append(std::string_view word, std::size_t readable, std::vector<TokenId>& out, const Make& make) {
    if (word.size() > 15 || word.empty()) return append_long(word, out, make);
    const Key key = key_of(word, readable);
    Short& entry = short_[hash(key) >> (64 - kShortBits)];
    if (entry.key.low != key.low || entry.key.high != key.high) {
      scratch_.clear();
      make(word, scratch_);
      if (!pack(entry, key, scratch_)) {
        out.insert(out.end(), scratch_.begin(), scratch_.end());
        return;
      }
    }
    const TokenId first = static_cast<TokenId>(entry.ids_low & kMaxId);
    if (first == kMaxId) return;  // no tokens at all
    out.push_back(first);
    std::uint64_t rest = entry.ids_low >> kIdBits;
    for (int i = 1; i < 6; ++i) {
      if (i == 3) rest = entry.ids_high;
      const auto id = static_cast<TokenId>(rest & kMaxId);
      if (id == kMaxId) return;
      out.push_back(id);
      rest >>= kIdBits;
    }
  }

 private:
  static constexpr int kShortBits = 16, kLongBits = 12, kIdBits = 20;
  static constexpr std::uint64_t kMaxId = (std::uint64_t{1} << kIdBits) - 1;  // stands for "no more"

  struct Key {
    std::uint64_t low = 0, high = 0;  // the bytes; the last of them is the length, so that no word is all zero
  };
  struct Short {
    Key key;
    std::uint64_t ids_low = 0, ids_high = 0;  // three ids each
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

  static bool pack(Short& entry, const Key& key, const std::vector<TokenId>& ids) {
    if (ids.size() > 6) return false;
    std::array<std::uint64_t, 6> slots;
    slots.fill(kMaxId);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= kMaxId) return false;
      slots[i] = ids[i];
    }
    entry = {key, slots[0] | slots[1] << kIdBits | slots[2] << (2 * kIdBits),
             slots[3] | slots[4] << kIdBits | slots[5] << (2 * kIdBits)};
    return true;
  }

  template <class Make>
  void append_long(std::string_view word, std::vector<TokenId>& out, const Make& make) {
    constexpr std::size_t kLongest = 256;  // longer ones do not come back
    if (word.size() > kLongest || word.empty()) {
      scratch_.clear();
      make(word, scratch_);
      out.insert(out.end(), scratch_.begin(), scratch_.end());
      return;
    }
    Long& entry = long_[std::hash<std::string_view>{}(word) >> (64 - kLongBits)];
    if (entry.word != word) {
      entry.ids.clear();
      entry.word.clear();  // should make() throw, the entry is nobody's
      make(word, entry.ids);
      entry.word = word;
    }
    out.insert(out.end(), entry.ids.begin(), entry.ids.end());
  }

  std::vector<Short> short_;
  std::vector<Long> long_;
  std::vector<TokenId> scratch_;
};

}  // namespace trireme
