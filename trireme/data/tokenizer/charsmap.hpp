#pragma once
// SentencePiece's compiled normalization rules ("precompiled_charsmap"): byte strings and what replaces them, as a
// double-array trie and a list of texts.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

class Charsmap {
 public:
  /// `place` is used in messages. DataError if `bytes` are not such rules; lookups never leave what was checked.
  Charsmap(std::string_view bytes, const std::string& place);

  struct Rule {
    std::size_t length = 0;  // of what is replaced
    std::string_view by;
  };
  /// The longest rule that `text` begins with: how SentencePiece applies them.
  std::optional<Rule> longest(std::string_view text) const;
  /// The shortest one: how `tokenizers` does.
  std::optional<Rule> shortest(std::string_view text) const;

 private:
  template <class Found>
  void search(std::string_view text, const Found& found) const;
  Rule rule(std::size_t length, std::uint32_t value) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;  // each ends with a NUL
};

}  // namespace trireme::data
