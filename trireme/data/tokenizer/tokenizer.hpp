#pragma once
// Text to tokens and back, with exactly the numbers that the reference libraries give.
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

/// What becomes of the spelling of a special token inside a text: the token, or what any other text of these letters becomes. Other
/// added tokens are found either way.
enum class SpecialText { token, text };

/// Immutable after loading: one object serves all threads.
class Tokenizer {
 public:
  /// `path`: tokenizer.json, a folder that holds one (or vocab.json and merges.txt), *.tiktoken, vocab.json (merges.txt beside it), or the
  /// word "bytes" (256 tokens, then <|endoftext|> = 256). DataError names what a file asks for and this does not do.
  static Tokenizer load(const std::filesystem::path& path);

  /// The same from the text of a tokenizer.json; `name` is what messages call it.
  static Tokenizer from_json(std::string_view json, const std::string& name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// `special_tokens`: also what the file's post-processor puts around a text (<s> ...). Added tokens inside the text are found either
  /// way, as the reference does. Text that is not UTF-8 is taken byte by byte where the tokenizer knows bytes, else as U+FFFD.
  std::vector<TokenId> encode(std::string_view text, bool special_tokens = false) const;
  /// A part of a longer text, which others may have written: with SpecialText::text it cannot bring in special tokens. `begins`: nothing
  /// stands before it, which matters to tokenizers that put a space before a text.
  std::vector<TokenId> encode_part(std::string_view text, SpecialText special, bool begins) const;
  /// The same as encode() of each, on `threads` threads (0: all cores).
  std::vector<std::vector<TokenId>> encode_batch(std::span<const std::string> texts, bool special_tokens = false,
                                                 int threads = 0) const;

  /// The bytes of the tokens; the result need not be UTF-8 when `ids` begin or end inside a character.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens = false) const;

  /// One more than the largest id.
  std::int64_t vocab_size() const;
  std::optional<TokenId> token_id(std::string_view token) const;  // "<|endoftext|>": by its text in the file
  std::string token_text(TokenId id) const;                       // as the file spells it
  /// Ends a document: what the file names as such, else <|endoftext|>, <|end_of_text|>, </s>, <|im_end|>, whichever is there first.
  std::optional<TokenId> end_of_document() const;

  /// 16 hexadecimal digits that depend on everything that decides ids, and on nothing else (not on the file's name or white space).
  const std::string& fingerprint() const;
  /// As messages name it: the file.
  const std::string& name() const;

  class Parts;  // tokenizer_parts.hpp
  explicit Tokenizer(std::unique_ptr<const Parts> parts);
  const Parts& parts() const { return *parts_; }

 private:
  std::unique_ptr<const Parts> parts_;
};

}  // namespace trireme::data
