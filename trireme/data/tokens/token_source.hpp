#pragma once
// A long row of tokens made of documents: what every token file and the synthetic source are to a sampler.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

/// A token of a source as a message names it. All numbers count from 0 within that file.
struct TokenPlace {
  std::string file;
  std::int64_t position = 0;
  std::int64_t document = -1;  // -1: not known
};

/// How tokens lie on disk, as people are told it.
struct TokenStorage {
  std::string format;   // "datatrove"; empty: not on disk
  std::string numbers;  // "u16"
  int token_bytes = 0;
};

class TokenSource {
 public:
  virtual ~TokenSource() = default;

  /// As messages name it: "data/book.ds".
  virtual const std::string& name() const = 0;
  virtual std::int64_t num_tokens() const = 0;
  virtual std::int64_t num_documents() const = 0;

  /// Tokens [first, first + out.size()). Several threads may read at once. DataError names the file and the offset when it is no longer
  /// what it was when it was opened.
  virtual void read(std::int64_t first, std::span<std::uint32_t> out) const = 0;

  /// Where documents end, as positions behind their last tokens: those e with first < e <= first + count, ascending and each
  /// once: documents without tokens are counted in num_documents() alone.
  virtual std::vector<std::int64_t> document_ends(std::int64_t first, std::int64_t count) const = 0;

  /// Whether some tokens do not count in the loss (prompts of chat data), and 1 or 0 for each of a range. Without such a mask all count.
  virtual bool has_loss_mask() const { return false; }
  virtual void read_loss_mask(std::int64_t first, std::span<std::uint8_t> out) const;

  /// Tokenizer::fingerprint() of the tokenizer that made the tokens; empty where the format does not say.
  virtual std::string tokenizer_fingerprint() const { return {}; }
  /// Its name, as whoever made the tokens wrote it down; empty where the format does not say. For messages: not checked.
  virtual std::string tokenizer_name() const { return {}; }

  virtual TokenStorage storage() const { return {}; }

  /// The file and the document that token `position` is in. For messages: may take long.
  virtual TokenPlace place(std::int64_t position) const { return {.file = name(), .position = position}; }
};

}  // namespace trireme::data
