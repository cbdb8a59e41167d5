#pragma once
// TokenSource for one file of any format, and for the concatenation of several files.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/data/tokens/document_ends.hpp"
#include "trireme/data/tokens/token_array.hpp"
#include "trireme/data/tokens/token_source.hpp"
#include "trireme/files/random_reader.hpp"

namespace trireme::data {

/// Which tokenizer produced the tokens, from the file or its sidecar file. Empty: unknown.
struct TokenizerRecord {
  std::string name;
  std::string fingerprint;  // 16 hexadecimal digits
};

bool is_fingerprint(std::string_view text);

/// Sidecar for formats without such a field: "PREFIX.tokenizer", three lines: name, fingerprint, number of tokens.
/// Other readers ignore it. Empty if the file does not exist; DataError if it belongs to other data.
TokenizerRecord read_tokenizer_record(const std::filesystem::path& file, std::int64_t num_tokens);
std::string tokenizer_record_text(const TokenizerRecord& record, std::int64_t num_tokens);

class FileTokens : public TokenSource {
 public:
  struct Parts {
    std::string name;
    std::string_view format;
    std::shared_ptr<const TokenArray> tokens;
    std::unique_ptr<const DocumentEnds> ends;
    std::optional<files::RandomReader> loss;  // one byte per token, 0 or 1
    TokenizerRecord tokenizer;
  };
  explicit FileTokens(Parts parts) : parts_(std::move(parts)) {}

  const std::string& name() const override { return parts_.name; }
  std::int64_t num_tokens() const override { return parts_.tokens->size(); }
  std::int64_t num_documents() const override { return parts_.ends->count(); }
  void read(std::int64_t first, std::span<std::uint32_t> out) const override { parts_.tokens->read(first, out); }
  std::vector<std::int64_t> document_ends(std::int64_t first, std::int64_t count) const override;
  bool has_loss_mask() const override { return parts_.loss.has_value(); }
  void read_loss_mask(std::int64_t first, std::span<std::uint8_t> out) const override;
  std::string tokenizer_fingerprint() const override { return parts_.tokenizer.fingerprint; }
  std::string tokenizer_name() const override { return parts_.tokenizer.name; }
  TokenStorage storage() const override;
  TokenPlace place(std::int64_t position) const override;

 private:
  Parts parts_;
};

class ConcatenatedTokens : public TokenSource {
 public:
  /// DataError if two parts were made by different tokenizers, or if there are more than 2^63 - 1 tokens.
  ConcatenatedTokens(std::string name, std::vector<std::unique_ptr<TokenSource>> parts);

  const std::string& name() const override { return name_; }
  std::int64_t num_tokens() const override { return begins_.back(); }
  std::int64_t num_documents() const override;
  void read(std::int64_t first, std::span<std::uint32_t> out) const override;
  std::vector<std::int64_t> document_ends(std::int64_t first, std::int64_t count) const override;
  bool has_loss_mask() const override;
  void read_loss_mask(std::int64_t first, std::span<std::uint8_t> out) const override;
  std::string tokenizer_fingerprint() const override { return tokenizer_.fingerprint; }
  std::string tokenizer_name() const override { return tokenizer_.name; }
  TokenStorage storage() const override;
  TokenPlace place(std::int64_t position) const override;

 private:
  /// Calls body(part, first of the part, offset from `first`, count) for each part that overlaps the range.
  template <class Body>
  void each_part(std::int64_t first, std::int64_t count, const Body& body) const;

  std::string name_;
  std::vector<std::unique_ptr<TokenSource>> parts_;
  std::vector<std::int64_t> begins_;  // one entry more than parts: the last is the number of tokens
  TokenizerRecord tokenizer_;
};

}  // namespace trireme::data
