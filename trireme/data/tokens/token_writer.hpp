#pragma once
// Writing a data set of tokens, document after document, in any of the formats; it appears when it is complete.
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
  std::int64_t vocab_size = 0;          // decides the width of a token: two bytes where all ids fit, else four
  TokenizerRecord tokenizer{};          // as the tokenizer names itself
  bool loss_mask = false;               // datatrove alone has a place for it
  std::function<void()> before_step{};  // tests stop there: StagedFiles::publish
};

/// Files are written in the target folder under other names; they get their own when finish() is called. Without it nothing
/// remains, and an older data set of that name stays. Memory does not grow with the number of documents.
/// DataError where the disk is full, and for documents that the format or the vocabulary has no place for.
class TokenWriter {
 public:
  virtual ~TokenWriter() = default;

  /// `ids` with the token that ends a document, if the data is to have one. `loss_mask`: as long as `ids`, with
  /// options.loss_mask only; 1 where a token counts.
  void append(std::span<const std::uint32_t> ids, std::span<const std::uint8_t> loss_mask = {});
  /// All of finish() that can fail for want of room, without anything appearing yet; and the removal of an old data set's key. For those
  /// who write several data sets of which all are to appear or none.
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
  /// What stands at the end or needs counts; adds the file that is the key (Note [A set of files replaces another]).
  virtual void complete() = 0;

  std::string shown_;
  TokenWriterOptions options_;
  files::StagedFiles files_;
  std::int64_t num_tokens_ = 0, num_documents_ = 0;
  bool usable_ = true, settled_ = false;
};

/// `path`: x.ds for datatrove, x (or x.idx, x.bin) for Megatron, x.bin for llm.c; the ending is added where it is missing.
std::unique_ptr<TokenWriter> write_tokens(TokenFormat format, const std::filesystem::path& path,
                                          TokenWriterOptions options);

}  // namespace trireme::data
