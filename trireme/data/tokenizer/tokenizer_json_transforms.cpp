#include "trireme/data/tokenizer/tokenizer_json_transforms.hpp"

#include <map>

#include "trireme/data/tokenizer/base64.hpp"

namespace trireme::data {
namespace {

std::string read_pattern(const JsonView& json) {
  if (json.has("Regex")) return json.at("Regex").string();
  if (json.has("String")) return literal_pattern(json.at("String").string());
  json.fail("is neither a Regex nor a String");
}

template <class Value>
Value one_of(const JsonView& json, const std::map<std::string, Value>& words) {
  const auto found = words.find(json.string());
  if (found == words.end()) json.not_done(files::shown_name(json.string()));
  return found->second;
}

SplitBehavior read_behavior(const JsonView& json) {
  using enum SplitBehavior;
  return one_of<SplitBehavior>(json, {{"Removed", removed},
                                      {"Isolated", isolated},
                                      {"MergedWithPrevious", merged_with_previous},
                                      {"MergedWithNext", merged_with_next},
                                      {"Contiguous", contiguous}});
}

SplitText read_split(const JsonView& json) {
  json.only({"type", "pattern", "behavior", "invert"});
  return {compiled_pattern(json.at("pattern")), read_behavior(json.at("behavior")), json.flag("invert", false)};
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

}  // namespace

std::string literal_pattern(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    if (std::string_view(R"(\^$.|?*+()[]{}-#)").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

Pattern compiled_pattern(const JsonView& json) {
  try {
    return Pattern(read_pattern(json));
  } catch (const DataError& error) {
    throw DataError(text(json.place(), ": ", error.what()));
  }
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
      steps.emplace_back(ReplaceText{compiled_pattern(step.at("pattern")), step.at("content").string()});
    } else if (type == "Precompiled") {
      step.only({"type", "precompiled_charsmap"});
      const JsonView map = step.at("precompiled_charsmap");
      steps.emplace_back(ApplyCharsmap{Charsmap(from_base64(map.string(), map.place()), map.place())});
    } else if (type == "Strip") {
      step.only({"type", "strip_left", "strip_right"});
      steps.emplace_back(StripSpace{step.flag("strip_left", true), step.flag("strip_right", true)});
    } else if (type == "BertNormalizer") {
      step.only({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
      const bool lower_case = step.flag("lowercase", true);
      steps.emplace_back(NormalizeForBert{step.flag("clean_text", true), step.flag("handle_chinese_chars", true),
                                          step.flag("strip_accents", lower_case), lower_case});
    } else if (type == "Nmt" || type == "Lowercase" || type == "StripAccents") {
      step.only({"type"});
      if (type == "Nmt")
        steps.emplace_back(CleanForNmt{});
      else if (type == "Lowercase")
        steps.emplace_back(LowerCase{});
      else
        steps.emplace_back(StripAccents{});
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
    } else if (type == "Punctuation") {
      step.only({"type", "behavior"});
      const auto behavior = step.has("behavior") ? read_behavior(step.at("behavior")) : SplitBehavior::isolated;
      out.steps.emplace_back(SplitCharacters{SplitCharacters::Class::punctuation, behavior});
    } else if (type == "BertPreTokenizer" || type == "WhitespaceSplit") {
      step.only({"type"});
      out.steps.emplace_back(SplitCharacters{SplitCharacters::Class::white_space, SplitBehavior::removed});
      if (type == "BertPreTokenizer")
        out.steps.emplace_back(SplitCharacters{SplitCharacters::Class::punctuation, SplitBehavior::isolated});
    } else if (type == "Whitespace") {
      step.only({"type"});
      out.steps.emplace_back(SplitWords{});
    } else {
      step.not_done(text("the pre-tokenizer ", files::shown_name(type)));
    }
  });
  out.fast = fast_form(out.steps);
  return out;
}

}  // namespace trireme::data
