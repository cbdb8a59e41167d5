#pragma once
// From pieces of files to documents of tokens: what each worker does with a batch.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/prepare/document_reader.hpp"
#include "trireme/data/tokenizer/chat.hpp"
#include "trireme/data/tokens/token_id.hpp"

namespace trireme::data {

struct DocumentOptions {
  std::string key = "text";          // of JSON lines
  std::optional<ChatTemplate> chat;  // JSON lines are conversations
  bool skip_bad = false;             // else a bad line is a DataError
};

/// Lines that were not what they should be.
struct BadLines {
  std::int64_t count = 0;
  std::string first;  // its place and what is wrong with it

  void add(const BadLines& others);
};

/// Hands the parts of each document of `batch` to `take`; one that throws BadDocument is a bad line. For one thread.
class DocumentParser {
 public:
  DocumentParser(const DocumentOptions& options, const DocumentReader& files);

  void each(const TextBatch& batch, BadLines& bad, const std::function<void(std::span<const TextPart>)>& take);

 private:
  std::span<const TextPart> parts_of(std::string_view piece, bool json_lines);

  const DocumentOptions& options_;
  const DocumentReader& files_;
  std::optional<ChatParser> chat_;
  std::string text_;
  TextPart whole_;
};

struct EncodedBatch {
  TextBatch text;
  std::vector<TokenId> ids;
  std::vector<std::uint8_t> loss_mask;  // with a chat template alone
  std::vector<std::size_t> ends;        // of documents, in ids
  std::int64_t empty = 0;               // documents without a token, which are left out
  std::uint64_t text_bytes = 0;         // that became tokens
  BadLines bad;
};

/// Fills what is behind `text`. Special tokens are found in documents as the reference does, and never in the words of a
/// conversation. `end_of_document` is put behind each.
void encode_documents(const Tokenizer& tokenizer, std::optional<TokenId> end_of_document, DocumentParser& parser,
                      EncodedBatch& batch);

}  // namespace trireme::data
