#pragma once
// Tokenizer: text to token ids and back, with ids identical to those of the reference libraries.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/tokens/token_id.hpp"

namespace trireme::data {

/// How the text of a special token inside an input is tokenized: as the special token, or as plain text. Other added
/// tokens are recognized either way.
enum class SpecialText { token, text };

/// Where a part of a longer text stands: tokenizers that prepend a space do so at the beginning of the text, or also
/// after each added token.
enum class TextPlace { begins, after_token, continues };

/// By its name: tokenizer.model, spiece.model, Mistral's tokenizer.model.v3.
bool is_sentencepiece_file(const std::filesystem::path& path);

/// The file in which `folder` has its tokenizer, the first that exists of tokenizer.json, vocab.json (with merges.txt),
/// tekken.json, tokenizer.model.
std::optional<std::filesystem::path> tokenizer_file_in(const std::filesystem::path& folder);

/// Immutable after loading, so it can be shared by threads.
class Tokenizer {
 public:
  /// `path`: tokenizer.json, tekken.json, SentencePiece's *.model, *.tiktoken, vocab.json (with merges.txt next to it),
  /// a folder with one of them, or "bytes" (256 tokens, then <|endoftext|> = 256). DataError names features of a file
  /// that are not supported.
  static Tokenizer load(const std::filesystem::path& path);

  /// The same from the text of a tokenizer.json; `name` is used in messages.
  static Tokenizer from_json(std::string_view json, const std::string& name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// `special_tokens`: also add what the file's post-processor puts around a text (<s> ...). Added tokens inside the
  /// text are recognized either way, as in the reference (not so with SentencePiece and tekken, whose references take
  /// the spelling of special tokens for text). Invalid UTF-8 is encoded byte by byte if the tokenizer has
  /// byte tokens, else as U+FFFD.
  std::vector<TokenId> encode(std::string_view text, bool special_tokens = false) const;
  /// Encodes a part of a longer text, possibly untrusted: with SpecialText::text it cannot inject special tokens.
  std::vector<TokenId> encode_part(std::string_view text, SpecialText special,
                                   TextPlace place = TextPlace::begins) const;
  /// Same as encode() of each text, on `threads` threads (0: all cores).
  std::vector<std::vector<TokenId>> encode_batch(std::span<const std::string> texts, bool special_tokens = false,
                                                 int threads = 0) const;

  /// The bytes of the tokens; not valid UTF-8 if `ids` begin or end inside a character.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens = false) const;

  /// One more than the largest id.
  std::int64_t vocab_size() const;
  std::optional<TokenId> token_id(std::string_view token) const;  // "<|endoftext|>": by its text in the file
  std::string token_text(TokenId id) const;                       // as the file spells it
  /// The end-of-document token: the one configured in the file, else the first that exists of <|endoftext|>,
  /// <|end_of_text|>, </s>, <|im_end|>.
  std::optional<TokenId> end_of_document() const;

  /// 16 hexadecimal digits that depend on everything that affects ids, and on nothing else (not on the file name or
  /// white space).
  const std::string& fingerprint() const;
  /// The name for messages: the file.
  const std::string& name() const;

  class Parts;  // tokenizer_parts.hpp
  explicit Tokenizer(std::unique_ptr<const Parts> parts);
  const Parts& parts() const { return *parts_; }

 private:
  std::unique_ptr<const Parts> parts_;
};

}  // namespace trireme::data
