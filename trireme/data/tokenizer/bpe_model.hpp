#pragma once
// The BPE model of a tokenizer.json or .tiktoken file: from a word to its tokens.
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "trireme/data/tokenizer/bpe.hpp"
#include "trireme/data/tokenizer/byte_fallback.hpp"
#include "trireme/data/tokenizer/token_map.hpp"

namespace trireme::data {

struct BpeModel {
  bool byte_level = false;  // symbols are bytes; else characters
  MergeTable merges;
  TokenMap words;                                  // by their bytes
  std::array<TokenId, 256> byte_ids = all_none();  // byte_level: the token of each byte
  ByteFallbacks fallbacks;                         // for characters without a token
  bool byte_fallback = false;                      // whether to use them
  bool whole_words_first = false;                  // a word that is a token is not built from merges ("ignore_merges")
  std::optional<TokenId> unknown;
  bool fuse_unknown = false;

  void append(std::string_view word, std::vector<TokenId>& out) const;

  static constexpr std::array<TokenId, 256> all_none() {
    std::array<TokenId, 256> out{};
    out.fill(kNoToken);
    return out;
  }
};

}  // namespace trireme::data
