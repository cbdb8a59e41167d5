#include "trireme/data/tokenizer/tokenizer_json_transforms.hpp"

#include <map>

#include "trireme/data/tokenizer/byte_alphabet.hpp"

namespace trireme::data {
namespace {

/// Calls `one` for each component of a Sequence (stored under `key`), or for a single component.
template <class One>
void for_each_step(const JsonView& json, const char* key, const One& one) {
  if (json.is_null()) return;
  if (json.at("type").string() != "Sequence") return one(json, json.at("type").string());
  json.only({"type", key});
  const JsonView list = json.at(key);
  for (std::size_t i = 0; i < list.list_size(); ++i) for_each_step(list.at(i), key, one);
}

/// A literal as a regular expression.
std::string literal_pattern(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    if (std::string_view(R"(\^$.|?*+()[]{}-#)").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string read_pattern(const JsonView& json) {
  if (json.has("Regex")) return json.at("Regex").string();
  if (json.has("String")) return literal_pattern(json.at("String").string());
  json.fail("is neither a Regex nor a String");
}

Pattern compiled(const JsonView& json) {
  try {
    return Pattern(read_pattern(json));
  } catch (const DataError& error) {
    throw DataError(text(json.place(), ": ", error.what()));
  }
}

template <class Value>
Value one_of(const JsonView& json, const std::map<std::string, Value>& words) {
  const auto found = words.find(json.string());
  if (found == words.end()) json.not_done(files::shown_name(json.string()));
  return found->second;
}

Metaspace read_metaspace(const JsonView& json) {
  json.only({"type", "replacement", "prepend_scheme", "add_prefix_space", "str_rep", "split"});
  Metaspace step;
  step.replacement = json.string_or("replacement", "\u2581");
  if (step.replacement.empty() || first_code_point(step.replacement).bytes != step.replacement.size())
    json.at("replacement").fail("is not one character");
  using Prepend = Metaspace::Prepend;
  if (json.has("prepend_scheme"))
    step.prepend = one_of<Prepend>(json.at("prepend_scheme"),
                                   {{"always", Prepend::always}, {"first", Prepend::first}, {"never", Prepend::never}});
  // The older flag; the reference accepts "false" only together with "never".
  if (!json.flag("add_prefix_space", true) && step.prepend != Prepend::never)
    json.at("add_prefix_space").fail("is false, but prepend_scheme is not \"never\"");
  step.split = json.flag("split", true);
  return step;
}

SplitText read_split(const JsonView& json) {
  json.only({"type", "pattern", "behavior", "invert"});
  using enum SplitBehavior;
  return {compiled(json.at("pattern")),
          one_of<SplitBehavior>(json.at("behavior"), {{"Removed", removed},
                                                      {"Isolated", isolated},
                                                      {"MergedWithPrevious", merged_with_previous},
                                                      {"MergedWithNext", merged_with_next},
                                                      {"Contiguous", contiguous}}),
          json.flag("invert", false)};
}

/// The hand-written equivalent of a single split that keeps all matches and whose pattern matches everything.
KnownPattern fast_form(const std::vector<PreTokenizer>& steps) {
  if (steps.size() != 1) return KnownPattern::none;
  const auto* split = std::get_if<SplitText>(&steps[0]);
  if (!split) return KnownPattern::none;
  const bool all_kept = (split->behavior == SplitBehavior::isolated && !split->invert) ||
                        (split->behavior == SplitBehavior::removed && split->invert);
  return all_kept ? known_pattern(split->pattern.regex()) : KnownPattern::none;
}

void replace_in_all(std::vector<std::string>& tokens, ReplaceText step) {
  const Normalizer replace = std::move(step);
  for (std::string& token : tokens) token = normalised_by(replace, token);
}

}  // namespace

std::optional<unsigned char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  unsigned value = 0;
  for (const char c : token.substr(3, 2)) {
    const std::size_t digit = std::string_view("0123456789ABCDEF").find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    value = value * 16 + static_cast<unsigned>(digit);
  }
  return static_cast<unsigned char>(value);
}

std::vector<Normalizer> read_normalizers(const JsonView& json) {
  std::vector<Normalizer> steps;
  for_each_step(json, "normalizers", [&](const JsonView& step, const std::string& type) {
    const std::map<std::string, NormalForm> forms{
        {"NFC", NormalForm::nfc}, {"NFD", NormalForm::nfd}, {"NFKC", NormalForm::nfkc}, {"NFKD", NormalForm::nfkd}};
    if (const auto form = forms.find(type); form != forms.end()) {
      step.only({"type"});
      steps.emplace_back(ToNormalForm{form->second});
    } else if (type == "Prepend") {
      step.only({"type", "prepend"});
      steps.emplace_back(PrependText{step.at("prepend").string()});
    } else if (type == "Replace") {
      step.only({"type", "pattern", "content"});
      steps.emplace_back(ReplaceText{compiled(step.at("pattern")), step.at("content").string()});
    } else {
      step.not_done(text("the normalizer ", files::shown_name(type)));
    }
  });
  return steps;
}

PreTokenizers read_pre_tokenizers(const JsonView& json) {
  PreTokenizers out;
  for_each_step(json, "pretokenizers", [&](const JsonView& step, const std::string& type) {
    if (out.byte_level) step.not_done("a pre-tokenizer behind ByteLevel");
    if (type == "ByteLevel") {
      step.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
      if (step.flag("add_prefix_space", true)) out.steps.emplace_back(PrefixSpace{});
      if (step.flag("use_regex", true))
        out.steps.emplace_back(SplitText{Pattern(kGpt2Pattern), SplitBehavior::isolated, false});
      out.byte_level = true;
    } else if (type == "Split") {
      out.steps.emplace_back(read_split(step));
    } else if (type == "Digits") {
      step.only({"type", "individual_digits"});
      out.steps.emplace_back(SplitNumbers{step.flag("individual_digits", false)});
    } else if (type == "Metaspace") {
      out.steps.emplace_back(read_metaspace(step));
    } else {
      step.not_done(text("the pre-tokenizer ", files::shown_name(type)));
    }
  });
  out.fast = fast_form(out.steps);
  return out;
}

void read_post_processor(const JsonView& json, Tokenizer::Parts& parts) {
  for_each_step(json, "processors", [&](const JsonView& step, const std::string& type) {
    if (type == "ByteLevel") return;  // only changes offsets, which we do not return
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
      for (std::size_t k = 0; k < ids.list_size(); ++k) {
        const TokenId id = ids.at(k).number();
        if (id >= parts.texts.size())
          ids.at(k).fail(text("is ", id, ", outside the vocabulary (", parts.texts.size(), ')'));
        (behind ? parts.behind : parts.before).push_back(id);
      }
    }
    if (!behind) single.fail("has no place for the text");
  });
}

Decoding read_decoding(const JsonView& json, const Tokenizer::Parts& parts) {
  Decoding out;
  out.bytes = parts.texts;
  for (const auto& [id, normalised_text] : parts.decoded_as) out.bytes[id] = normalised_text;
  if (json.is_null()) out.separator = " ";
  bool fused = false;
  for_each_step(json, "decoders", [&](const JsonView& step, const std::string& type) {
    if (type == "ByteLevel") {
      for (std::string& token : out.bytes)
        if (auto bytes = bytes_of_spelling(token)) token = std::move(*bytes);
    } else if (type == "Replace") {
      step.only({"type", "pattern", "content"});
      if (fused) step.not_done("Replace behind Fuse");
      replace_in_all(out.bytes, {compiled(step.at("pattern")), step.at("content").string()});
    } else if (type == "ByteFallback") {
      for (std::string& token : out.bytes)
        if (const auto byte = fallback_byte(token)) token.assign(1, static_cast<char>(*byte));
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
        out.first_bytes = out.bytes;
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
