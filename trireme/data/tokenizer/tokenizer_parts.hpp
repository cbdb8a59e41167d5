#pragma once
// The components of a tokenizer: filled by the reader of each file format, executed by tokenizer.cpp.
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "trireme/data/tokenizer/added_tokens.hpp"
#include "trireme/data/tokenizer/bpe_model.hpp"
#include "trireme/data/tokenizer/fast_split.hpp"
#include "trireme/data/tokenizer/sentencepiece_bpe.hpp"
#include "trireme/data/tokenizer/text_transforms.hpp"
#include "trireme/data/tokenizer/tokenizer.hpp"
#include "trireme/data/tokenizer/unigram.hpp"
#include "trireme/data/tokenizer/word_cache.hpp"
#include "trireme/data/tokenizer/wordpiece.hpp"

namespace trireme::data {

/// From a word to its tokens: append(word, ids) of each.
using WordModel = std::variant<BpeModel, UnigramModel, WordPieceModel, SentencePieceBpe>;

/// From tokens to text: the bytes of each, concatenated (detokenizer.hpp).
struct Decoding {
  /// Which tokens at the beginning have `first_bytes`: the first one; all until there is text, or until one of them has
  /// lost something.
  enum class Leading { first, until_text, until_stripped };

  std::vector<std::string> bytes;        // by id
  std::string separator;                 // between tokens
  std::size_t strip_at_most = 0;         // leading spaces of the text
  std::vector<std::string> first_bytes;  // by id, for leading tokens only; empty: `bytes`
  Leading leading = Leading::first;

  const std::string& of(TokenId id, bool leads) const {
    return leads && !first_bytes.empty() ? first_bytes[id] : bytes[id];
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
  bool special_is_text = false;  // encode() does not recognize the spelling of special tokens, as in the reference
  std::vector<bool> special;     // by id
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  KnownPattern fast = KnownPattern::none;  // replaces all pre-tokenizers
  WordModel model;
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
std::unique_ptr<Tokenizer::Parts> parts_of_tekken(const std::filesystem::path& file);
std::unique_ptr<Tokenizer::Parts> parts_of_sentencepiece(const std::filesystem::path& file);
std::unique_ptr<Tokenizer::Parts> parts_of_bytes();
// The same from text, for fuzzing.
std::unique_ptr<Tokenizer::Parts> parts_of_tokenizer_json_text(std::string_view json, const std::string& name);
std::unique_ptr<Tokenizer::Parts> parts_of_tiktoken_text(std::string_view lines, const std::string& name);

std::unique_ptr<Tokenizer::Parts> parts_of_tekken_text(std::string_view json, const std::string& name);
std::unique_ptr<Tokenizer::Parts> parts_of_sentencepiece_bytes(std::string_view proto, const std::string& name);

/// "eos_token" of the tokenizer_config.json next to `file`, if there is one.
std::optional<TokenId> configured_end(const std::filesystem::path& file, const Tokenizer::Parts& parts);

/// Reads a whole file; DataError on failure.
std::string tokenizer_file_text(const std::filesystem::path& file);

/// XXH3-64 as sixteen hexadecimal digits.
std::string hash_text(std::string_view bytes);

}  // namespace trireme::data
