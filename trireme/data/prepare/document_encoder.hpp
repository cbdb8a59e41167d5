#pragma once
// Parses and tokenizes a batch of documents: the work of one data-preparation thread.
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
  std::string key = "text";          // the text field of JSON lines
  std::optional<ChatTemplate> chat;  // set: JSON lines are conversations
  bool skip_bad = false;             // else an invalid line is a DataError
};

/// Count of invalid lines.
struct BadLines {
  std::int64_t count = 0;
  std::string first;  // location and error of the first one

  void add(const BadLines& others);
};

/// Passes the parts of each document of `batch` to `take`; BadDocument from it means an invalid line. Not thread-safe.
class DocumentParser {
 public:
  DocumentParser(const DocumentOptions& options, const DocumentReader& files);

  void each(const TextBatch& batch, BadLines& bad, const std::function<void(std::span<const TextPart>)>& take);

 private:
  std::span<const TextPart> parts_of(std::string_view piece, bool json);

  const DocumentOptions& options_;
  const DocumentReader& files_;
  std::optional<ChatParser> chat_;
  std::string text_;
  TextPart whole_;
};

struct EncodedBatch {
  TextBatch text;
  std::vector<TokenId> ids;
  std::vector<std::uint8_t> loss_mask;  // only with a chat template
  std::vector<std::size_t> ends;        // end offsets of the documents in ids
  std::int64_t empty = 0;               // documents without tokens, which are skipped
  std::int64_t unanswered = 0;          // conversations without an answer to learn, which are skipped
  std::int64_t not_utf8 = 0;            // documents with bytes that are not UTF-8
  std::uint64_t text_bytes = 0;         // bytes of text that were tokenized
  BadLines bad;
};

/// Fills all fields after `text`. Special tokens are recognized in documents, as the reference does, but never in the
/// messages of a conversation. `end_of_document` is appended to each document.
void encode_documents(const Tokenizer& tokenizer, std::optional<TokenId> end_of_document, DocumentParser& parser,
                      EncodedBatch& batch);

}  // namespace trireme::data
