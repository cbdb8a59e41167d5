#pragma once
// The components of a tokenizer: filled by the reader of each file format, executed by tokenizer.cpp.
#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/data/tokenizer/added_tokens.hpp"
#include "trireme/data/tokenizer/bpe.hpp"
#include "trireme/data/tokenizer/fast_split.hpp"
#include "trireme/data/tokenizer/text_transforms.hpp"
#include "trireme/data/tokenizer/tokenizer.hpp"
#include "trireme/data/tokenizer/word_cache.hpp"

namespace trireme::data {

inline constexpr TokenId kNoToken = 0xFFFFFFFF;

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using TokenMap = std::unordered_map<std::string, TokenId, TextHash, std::equal_to<>>;

/// The BPE model: from a word to its tokens.
struct BpeModel {
  bool byte_level = false;  // symbols are bytes; else characters
  MergeTable merges;
  TokenMap words;                                   // by their bytes
  std::array<TokenId, 256> byte_ids = all_none();   // byte_level: the token of each byte
  std::array<TokenId, 256> fallbacks = all_none();  // <0x00> ... for characters without a token
  bool byte_fallback = false;                       // whether to use them
  bool whole_words_first = false;                   // a word that is a token is not built from merges ("ignore_merges")
  std::optional<TokenId> unknown;
  bool fuse_unknown = false;

  void append(std::string_view word, std::vector<TokenId>& out) const;

  static constexpr std::array<TokenId, 256> all_none() {
    std::array<TokenId, 256> out{};
    out.fill(kNoToken);
    return out;
  }
};

/// From tokens to text: the bytes of each, concatenated.
struct Decoding {
  std::vector<std::string> bytes;        // by id
  std::string separator;                 // between tokens
  std::size_t strip_at_most = 0;         // leading spaces of the text
  std::vector<std::string> first_bytes;  // by id, for the first token only; empty: `bytes`

  const std::string& of(TokenId id, bool first) const {
    return first && !first_bytes.empty() ? first_bytes[id] : bytes[id];
  }
};

/// Lends one cache per thread.
class CachePool {
 public:
  std::unique_ptr<WordCache> take();
  void give(std::unique_ptr<WordCache> cache);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<WordCache>> free_;
};

class Tokenizer::Parts {
 public:
  std::string name;
  std::vector<std::string> texts;  // by id, as the file spells them
  TokenMap ids;                    // by that spelling
  AddedTokenFinder added, added_normalised;
  std::vector<bool> special;  // by id
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  KnownPattern fast = KnownPattern::none;  // replaces all pre-tokenizers
  BpeModel model;
  std::vector<TokenId> before, behind;  // added around a text by the post-processor
  Decoding decoding;
  std::optional<TokenId> end_of_document;
  std::string fingerprint;
  mutable CachePool caches;

  std::vector<std::pair<TokenId, std::string>> decoded_as;  // added tokens that decode to a different text

  /// Sets a limit from the token count of a file: ids far above it indicate corruption, and would exhaust memory.
  void expect_tokens(std::size_t count) { most_tokens = 4 * count + 65'536; }
  std::size_t most_tokens = 65'536;
  /// Registers a token; DataError if its id is already used or implausibly large.
  void set_text(TokenId id, std::string_view spelling);
};

// The readers. DataError for invalid or unsupported files.
std::unique_ptr<Tokenizer::Parts> parts_of_tokenizer_json(const std::filesystem::path& file);
std::unique_ptr<Tokenizer::Parts> parts_of_vocab_and_merges(const std::filesystem::path& vocab,
                                                            const std::filesystem::path& merges);
std::unique_ptr<Tokenizer::Parts> parts_of_tiktoken(const std::filesystem::path& file);
std::unique_ptr<Tokenizer::Parts> parts_of_bytes();
// The same from text, for fuzzing.
std::unique_ptr<Tokenizer::Parts> parts_of_tokenizer_json_text(std::string_view json, const std::string& name);
std::unique_ptr<Tokenizer::Parts> parts_of_tiktoken_text(std::string_view lines, const std::string& name);

/// Reads a whole file; DataError on failure.
std::string tokenizer_file_text(const std::filesystem::path& file);

/// XXH3-64 as sixteen hexadecimal digits.
std::string hash_text(std::string_view bytes);

}  // namespace trireme::data
