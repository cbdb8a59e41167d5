#pragma once
// Byte strings with a number each, found by what a text begins with.
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "trireme/data/tokenizer/pair_table.hpp"

namespace trireme::data {

class ByteTrie {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF, kRoot = 0;
  struct Match {
    std::size_t length = 0;  // 0: none
    std::uint32_t value = kNone;
  };

  /// `key` must not be empty; added twice, the last value counts.
  void add(std::string_view key, std::uint32_t value) {
    std::uint32_t node = kRoot;
    for (const char c : key) {
      std::uint32_t next = child(node, c);
      if (next == 0) next = add_child(node, c);
      node = next;
    }
    values_[node] = value;
  }

  bool empty() const { return values_.size() == 1; }
  bool may_begin_with(char byte) const { return first_[static_cast<unsigned char>(byte)] != 0; }

  /// Calls each(length, value) for every key that `text` begins with, the shortest first.
  template <class Each>
  void for_each_prefix(std::string_view text, const Each& each) const {
    std::uint32_t node = kRoot;
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = child(node, text[i]);
      if (node == 0) return;
      if (values_[node] != kNone) each(i + 1, values_[node]);
    }
  }

  /// The longest key that `text` begins with. `from`: only keys that begin with those bytes, which are not in `text`.
  Match longest(std::string_view text, std::uint32_t from = kRoot) const {
    Match found;
    for (std::size_t i = 0; i < text.size(); ++i) {
      from = child(from, text[i]);
      if (from == 0) break;
      if (values_[from] != kNone) found = {i + 1, values_[from]};
    }
    return found;
  }

  /// The value of the key `text`, or kNone.
  std::uint32_t find(std::string_view text) const {
    const Match found = longest(text);
    return found.length == text.size() ? found.value : kNone;
  }

  /// For longest(): where keys that begin with `bytes` go on; nothing is found from there if there are none.
  std::uint32_t node_of(std::string_view bytes) const {
    std::uint32_t node = kRoot;
    for (const char c : bytes) {
      node = child(node, c);
      if (node == 0) return kNone;
    }
    return node;
  }

 private:
  std::uint32_t child(std::uint32_t node, char c) const {
    const auto byte = static_cast<unsigned char>(c);
    return node == kRoot ? first_[byte] : edges_.find(node, byte).made;
  }
  std::uint32_t add_child(std::uint32_t node, char c) {
    const auto byte = static_cast<unsigned char>(c);
    const auto made = static_cast<std::uint32_t>(values_.size());
    values_.push_back(kNone);
    if (node == kRoot)
      first_[byte] = made;
    else
      edges_.set(node, byte, {0, made});
    return made;
  }

  std::array<std::uint32_t, 256> first_{};  // the root's children: asked for at every byte of a text
  PairTable edges_;
  std::vector<std::uint32_t> values_{kNone};  // by node
};

}  // namespace trireme::data
