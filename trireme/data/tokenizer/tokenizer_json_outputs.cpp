#include "trireme/data/tokenizer/byte_alphabet.hpp"
#include "trireme/data/tokenizer/tokenizer_json_transforms.hpp"

// What comes behind the model: the post-processor and the decoder.

namespace trireme::data {
namespace {

void replace_in_all(std::vector<std::string>& tokens, ReplaceText step) {
  const Normalizer replace = std::move(step);
  for (std::string& token : tokens) token = normalised_by(replace, token);
}

TokenId checked_id(const JsonView& json, const Tokenizer::Parts& parts) {
  const TokenId id = json.number();
  if (id >= parts.texts.size()) json.fail(text("is ", id, ", outside the vocabulary (", parts.texts.size(), ')'));
  return id;
}

/// ["[SEP]", 102]
TokenId id_of_pair(const JsonView& json, const Tokenizer::Parts& parts) {
  if (json.list_size() != 2) json.fail("is not a token and its number");
  return checked_id(json.at(1), parts);
}

/// What the decoder WordPiece makes of spaces before punctuation and shortened words, token by token.
std::string cleaned_up(std::string token) {
  constexpr std::pair<std::string_view, std::string_view> kChanges[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kChanges)
    for (std::size_t at = token.find(from); at != std::string::npos; at = token.find(from, at + to.size()))
      token.replace(at, from.size(), to);
  return token;
}

void decode_wordpiece(const JsonView& step, Decoding& decoding) {
  step.only({"type", "prefix", "cleanup"});
  const std::string prefix = step.string_or("prefix", "##");
  const bool cleanup = step.flag("cleanup", true);
  if (decoding.first_bytes.empty()) decoding.first_bytes = decoding.bytes;
  for (std::string& token : decoding.bytes)
    token = token.starts_with(prefix) ? token.substr(prefix.size()) : " " + token;
  if (cleanup)
    for (auto* tokens : {&decoding.bytes, &decoding.first_bytes})
      for (std::string& token : *tokens) token = cleaned_up(std::move(token));
}

}  // namespace

void read_post_processor(const JsonView& json, Tokenizer::Parts& parts) {
  for_each_step(json, "processors", [&](const JsonView& step, const std::string& type) {
    if (type == "ByteLevel") return;  // only changes offsets, which we do not return
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      step.only({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
      parts.before.push_back(id_of_pair(step.at("cls"), parts));
      parts.behind.push_back(id_of_pair(step.at("sep"), parts));
      return;
    }
    if (type != "TemplateProcessing") step.not_done(text("the post-processor ", files::shown_name(type)));
    const JsonView single = step.at("single");
    bool behind = false;
    for (std::size_t i = 0; i < single.list_size(); ++i) {
      const JsonView item = single.at(i);
      if (item.has("Sequence")) {
        if (behind) item.not_done("a text that comes twice");
        behind = true;
        continue;
      }
      const std::string name = item.at("SpecialToken").at("id").string();
      const JsonView ids = step.at("special_tokens").at(name.c_str()).at("ids");
      for (std::size_t k = 0; k < ids.list_size(); ++k)
        (behind ? parts.behind : parts.before).push_back(checked_id(ids.at(k), parts));
    }
    if (!behind) single.fail("has no place for the text");
  });
}

Decoding read_decoding(const JsonView& json, const Tokenizer::Parts& parts) {
  Decoding out;
  out.bytes = parts.texts;
  for (const auto& [id, normalised_text] : parts.decoded_as) out.bytes[id] = normalised_text;
  if (json.is_null()) out.separator = " ";
  bool fused = false, has_bytes = false;
  const auto for_each_token = [&](const auto& change) {
    for (auto* tokens : {&out.bytes, &out.first_bytes})
      for (std::string& token : *tokens) change(token);
  };
  for_each_step(json, "decoders", [&](const JsonView& step, const std::string& type) {
    const bool last_ones = type == "Strip" || type == "Fuse";
    if (fused && !last_ones) step.not_done(type + " behind Fuse");
    if (has_bytes && !last_ones) step.not_done(type + " behind ByteFallback");  // would see characters, not bytes
    has_bytes |= type == "ByteFallback";
    if (type == "ByteLevel") {
      for_each_token([](std::string& token) {
        if (auto bytes = bytes_of_spelling(token)) token = std::move(*bytes);
      });
    } else if (type == "Replace") {
      step.only({"type", "pattern", "content"});
      for (auto* tokens : {&out.bytes, &out.first_bytes})
        replace_in_all(*tokens, {compiled_pattern(step.at("pattern")), step.at("content").string()});
    } else if (type == "ByteFallback") {
      for_each_token([](std::string& token) {
        if (const auto byte = fallback_byte(token)) token.assign(1, static_cast<char>(*byte));
      });
    } else if (type == "WordPiece") {
      decode_wordpiece(step, out);
    } else if (type == "Fuse") {
      fused = true;
    } else if (type == "Strip") {
      step.only({"type", "content", "start", "stop"});
      if (!fused) step.not_done("Strip without Fuse before it");
      if (step.at("content").string() != " " || step.at("stop").number() != 0)
        step.not_done("Strip of anything but spaces at the beginning");
      out.strip_at_most += step.at("start").number();
    } else if (type == "Metaspace") {
      const Metaspace metaspace = read_metaspace(step);
      if (metaspace.prepend != Metaspace::Prepend::never) {
        if (out.first_bytes.empty()) out.first_bytes = out.bytes;
        replace_in_all(out.first_bytes, {Pattern(literal_pattern(metaspace.replacement)), ""});
      }
      replace_in_all(out.bytes, {Pattern(literal_pattern(metaspace.replacement)), " "});
    } else {
      step.not_done(text("the decoder ", files::shown_name(type)));
    }
  });
  return out;
}

}  // namespace trireme::data
