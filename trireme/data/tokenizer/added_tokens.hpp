#pragma once
// Tokens that are found in a text before anything else looks at it: <|endoftext|>.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/tokenizer/bpe.hpp"

namespace trireme::data {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;      // left out by decode() when asked to
  bool normalised = false;   // looked for behind the normalizers, not before
  bool strip_left = false;   // takes the white space before it along
  bool strip_right = false;  // and behind it
  bool whole_word = false;   // only where no letter, number or _ is beside it
};

/// Finds tokens in texts: of those that begin leftmost the longest.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  struct Hit {
    std::size_t begin = 0, end = 0;  // bytes, with the white space that the token takes along
    const AddedToken* token = nullptr;
  };
  /// `special`: else special tokens are passed over, as if their text were any other.
  std::vector<Hit> find(std::string_view text, bool special = true) const;
  bool empty() const { return tokens_.empty(); }

 private:
  struct Node {
    std::vector<std::pair<char, std::uint32_t>> next;
    std::int32_t token = -1;
  };
  /// The longest token that begins at `at`, or nullptr.
  const AddedToken* longest_at(std::string_view text, std::size_t at) const;
  std::size_t next_start(std::string_view text, std::size_t from) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{Node{}};
  std::vector<bool> starts_ = std::vector<bool>(256, false);
  int only_start_ = -1;  // all begin with this byte
};

}  // namespace trireme::data
