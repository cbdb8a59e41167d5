#pragma once
// Streaming writer for token data sets in any format, document by document; the files appear when complete.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "trireme/data/tokens/file_tokens.hpp"
#include "trireme/files/staged_files.hpp"

namespace trireme::data {

enum class TokenFormat { datatrove, megatron, llmc };

std::string_view name(TokenFormat format);
/// "datatrove", "megatron", "llmc".
std::optional<TokenFormat> token_format(std::string_view name);

struct TokenWriterOptions {
  std::int64_t vocab_size = 0;          // determines the token width: two bytes if all ids fit, else four
  TokenizerRecord tokenizer{};          // name and fingerprint of the tokenizer
  bool loss_mask = false;               // only supported by datatrove
  std::function<void()> before_step{};  // hook for crash tests: StagedFiles::publish
};

/// Files are written under temporary names in the target folder and renamed by finish(). Without finish() they are
/// removed, and an existing data set of that name is kept. Memory does not grow with the number of documents.
/// DataError if the disk is full, and for documents that do not fit the format or the vocabulary.
class TokenWriter {
 public:
  virtual ~TokenWriter() = default;

  /// `ids` includes the end-of-document token, if the data is to have one. `loss_mask`: same length as `ids`, only with
  /// options.loss_mask; 1 if a token counts in the loss.
  void append(std::span<const std::uint32_t> ids, std::span<const std::uint8_t> loss_mask = {});
  /// All of finish() that can fail on a full disk, before anything is published; also removes the key of an old data
  /// set. For callers that publish several data sets together.
  void settle();
  void retract() { files_.retract(); }
  void finish();

  std::int64_t num_tokens() const { return num_tokens_; }
  std::int64_t num_documents() const { return num_documents_; }

 protected:
  TokenWriter(std::string shown, TokenFormat format, TokenWriterOptions options);

  const std::string& shown() const { return shown_; }
  const TokenWriterOptions& options() const { return options_; }
  files::StagedFiles& files() { return files_; }

 private:
  virtual void write(std::span<const std::uint32_t> ids, std::span<const std::uint8_t> loss_mask) = 0;
  /// Writes trailers and counts; adds the file that is the key (Note [A set of files replaces another]).
  virtual void complete() = 0;

  std::string shown_;
  TokenWriterOptions options_;
  files::StagedFiles files_;
  std::int64_t num_tokens_ = 0, num_documents_ = 0;
  bool usable_ = true, settled_ = false;
};

/// `path`: x.ds for datatrove, x (or x.idx, x.bin) for Megatron, x.bin for llm.c; a missing extension is added.
std::unique_ptr<TokenWriter> write_tokens(TokenFormat format, const std::filesystem::path& path,
                                          TokenWriterOptions options);

}  // namespace trireme::data
