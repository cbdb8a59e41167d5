#include "trireme/data/prepare/document_encoder.hpp"

#include <algorithm>
#include <array>

#include "trireme/base/error.hpp"
#include "trireme/data/tokenizer/json_field.hpp"
#include "trireme/data/tokenizer/unicode.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::data {

namespace {

/// `fault` lists the keys of the line.
bool looks_like_chat(std::string_view fault) {
  constexpr std::array<std::string_view, 4> kKeys = {"\"messages\"", "\"conversations\"", "\"instruction\"",
                                                     "\"completion\""};
  return fault.starts_with("has no key") && std::ranges::any_of(kKeys, [&](std::string_view key) {
           return fault.find(key, fault.find(';')) != std::string_view::npos;
         });
}

}  // namespace

void BadLines::add(const BadLines& others) {
  if (count == 0) first = others.first;
  count += others.count;
}

DocumentParser::DocumentParser(const DocumentOptions& options, const DocumentReader& files)
    : options_(options), files_(files) {
  if (options.chat) chat_.emplace(*options.chat);
}

std::span<const TextPart> DocumentParser::parts_of(std::string_view piece, bool json) {
  if (chat_ && !json) throw BadDocument("is text; conversations are lines of JSON (.jsonl)");
  if (chat_) return chat_->parse(piece);
  if (json) read_json_field(piece, options_.key, text_);
  whole_ = {.text = json ? text_ : piece, .origin = TextPart::Origin::document, .counts = true};
  return {&whole_, 1};
}

void DocumentParser::each(const TextBatch& batch, BadLines& bad,
                          const std::function<void(std::span<const TextPart>)>& take) {
  for (const DocumentText& piece : batch.pieces) {
    const InputFile& file = files_.file(piece.file);
    std::span<const TextPart> parts;
    try {
      parts = parts_of(batch.text(piece), file.layout != TextLayout::text);
    } catch (const BadDocument& fault) {
      const std::string what = text(file.shown(), ":", piece.line, ": ", fault.what());
      if (!options_.skip_bad)
        throw DataError(text(
            what, "\n  fix: ",
            chat_                           ? "one conversation a line, as messages, conversations, "
                                              "instruction and output, or prompt and completion"
            : looks_like_chat(fault.what()) ? "--chat, for conversations"
                                            : "one JSON object a line, with the text under the key that "
                                              "--key names",
            "; --skip-bad leaves such lines out",
            file.of_folder
                ? text(", --exclude ", files::shown_name(file.path.filename().string()), " this file of the folder")
                : ""));
      bad.add({.count = 1, .first = what});
      continue;
    }
    take(parts);
  }
}

void encode_documents(const Tokenizer& tokenizer, std::optional<TokenId> end_of_document, DocumentParser& parser,
                      EncodedBatch& batch) {
  batch.ids.clear();
  batch.loss_mask.clear();
  batch.ends.clear();
  batch.empty = batch.unanswered = batch.not_utf8 = 0;
  batch.text_bytes = 0;
  batch.bad = {};
  parser.each(batch.text, batch.bad, [&](std::span<const TextPart> parts) {
    if (!parts.empty() && std::ranges::none_of(parts, &TextPart::counts)) {
      ++batch.unanswered;
      return;
    }
    if (!std::ranges::all_of(parts, is_utf8, &TextPart::text)) ++batch.not_utf8;
    const std::size_t begin = batch.ids.size(), masked_before = batch.loss_mask.size();
    encode_parts(tokenizer, parts, batch.ids, batch.loss_mask);
    const bool masked = batch.loss_mask.size() > masked_before;
    for (const TextPart& part : parts) batch.text_bytes += part.text.size();
    if (batch.ids.size() == begin) {
      ++batch.empty;
      return;
    }
    if (end_of_document) {
      batch.ids.push_back(*end_of_document);
      if (masked) batch.loss_mask.push_back(batch.loss_mask.back());  // it is learnt with the last answer
    }
    batch.ends.push_back(batch.ids.size());
  });
}

}  // namespace trireme::data
