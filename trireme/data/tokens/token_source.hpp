#pragma once
// Interface of a token sequence with document boundaries, as used by the sampler: token files or synthetic tokens.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

/// The location of a token, for messages. All indices count from 0 within that file.
struct TokenPlace {
  std::string file;
  std::int64_t position = 0;
  std::int64_t document = -1;  // -1: unknown
};

/// The on-disk format of tokens, for display.
struct TokenStorage {
  std::string format;   // "datatrove"; empty: not on disk
  std::string numbers;  // "u16"
  int token_bytes = 0;
};

class TokenSource {
 public:
  virtual ~TokenSource() = default;

  /// The name for messages: "data/book.ds".
  virtual const std::string& name() const = 0;
  virtual std::int64_t num_tokens() const = 0;
  virtual std::int64_t num_documents() const = 0;

  /// Reads tokens [first, first + out.size()). Thread-safe. DataError names the file and the offset if the file has
  /// changed since it was opened.
  virtual void read(std::int64_t first, std::span<std::uint32_t> out) const = 0;

  /// Positions one past the last token of each document: those e with first < e <= first + count, ascending, without
  /// duplicates: empty documents are only counted in num_documents().
  virtual std::vector<std::int64_t> document_ends(std::int64_t first, std::int64_t count) const = 0;

  /// Whether some tokens do not count in the loss (prompts of chat data); read_loss_mask gives 1 or 0 per token.
  virtual bool has_loss_mask() const { return false; }
  virtual void read_loss_mask(std::int64_t first, std::span<std::uint8_t> out) const;

  /// Tokenizer::fingerprint() of the tokenizer that made the tokens; empty if the format does not store it.
  virtual std::string tokenizer_fingerprint() const { return {}; }
  /// Its recorded name; empty if the format does not store it. For messages: not checked.
  virtual std::string tokenizer_name() const { return {}; }

  virtual TokenStorage storage() const { return {}; }

  /// The file and the document of token `position`. For messages: may be slow.
  virtual TokenPlace place(std::int64_t position) const { return {.file = name(), .position = position}; }
};

}  // namespace trireme::data
