#include "trireme/config/read/reference.hpp"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/setting.hpp"
#include "trireme/config/settings/nearest.hpp"
#include "trireme/config/translate/aliases.hpp"

namespace trireme::config {
namespace {

/// A config with a stage and a source, whose keys are shown without their index.
Config& sample_config() {
  static Config config = [] {
    Config c;
    c.data.resize(1);
    c.data[0].sources.resize(1);
    return c;
  }();
  return config;
}

/// "data.sources.path" of "data.0.sources.0.path".
std::string shown_key(std::string key) {
  for (std::size_t at; (at = key.find(".0.")) != std::string::npos;) key.erase(at, 2);
  return key;
}

std::vector<Field> shown_fields() {
  std::vector<Field> all = fields(sample_config());
  for (Field& field : all) field.key = shown_key(field.key);
  return all;
}

std::string limit_text(double value) {
  return std::floor(value) == value && std::abs(value) < 1e15 ? std::to_string(static_cast<std::int64_t>(value))
                                                              : text(value);
}

/// "at least 1", "0 to 3"; a limit that only catches typing errors is left out.
std::string limits_of(const Field& field) {
  constexpr double kTypingError = 1e6;
  const bool low = std::isfinite(field.min), high = std::isfinite(field.max) && field.max < kTypingError;
  if (low && high && !field.above_min && !field.below_max)
    return text(limit_text(field.min), " to ", limit_text(field.max));
  std::string out;
  if (low) out = text(field.above_min ? "above " : "at least ", limit_text(field.min));
  if (high) out += text(out.empty() ? "" : ", ", field.below_max ? "below " : "at most ", limit_text(field.max));
  return out;
}

std::string choices_of(const Field& field) {
  std::string out;
  for (const std::string& choice : field.choices) out += (out.empty() ? "" : ", ") + toml_string(choice);
  return out;
}

std::string names_elsewhere(const std::string& key) {
  std::string out;
  for (const Framework framework : {Framework::nanotron, Framework::torchtitan, Framework::megatron,
                                    Framework::deepspeed, Framework::hf_trainer, Framework::hf_config}) {
    std::vector<std::string> names;
    for (const Alias& alias : aliases())
      if (alias.framework == framework && shown_key(alias.key) == key &&
          std::ranges::find(names, alias.foreign) == names.end())
        names.push_back(alias.foreign);
    for (std::size_t i = 0; i < names.size(); ++i)
      out += i > 0 ? ", " + names[i] : text(out.empty() ? "" : " · ", name(framework), " ", names[i]);
  }
  return out;
}

std::string explain_field(const Field& field) {
  std::string out = text(field.key, " = ", toml_text(field.value), "   (default; ", type_word(field.value), ")\n  ",
                         field.meaning, "\n");
  const auto line = [&](const char* what, const std::string& words) {
    if (!words.empty()) out += text("  ", what, words, "\n");
  };
  line("unit:      ", unit_of(field.key));
  line("limits:    ", limits_of(field));
  line("choices:   ", choices_of(field));
  line("elsewhere: ", names_elsewhere(field.key));
  return out;
}

std::string one_line(const Field& field) {
  std::string out = text(field.key, " = ", toml_text(field.value));
  out.resize(std::max<std::size_t>(out.size() + 2, 44), ' ');
  return out + field.meaning + "\n";
}

std::string cell(std::string words) {
  for (std::size_t at = 0; (at = words.find('|', at)) != std::string::npos; at += 2) words.insert(at, 1, '\\');
  return words;
}

}  // namespace

std::string meaning_of(const Field& field) {
  std::string out = field.meaning;
  const std::string unit = unit_of(shown_key(field.key)), limits = limits_of(field), choices = choices_of(field);
  // "steps between two validations" says its unit already.
  const std::string more = unit.empty() || out.find(unit) != std::string::npos ? limits
                           : limits.empty()                                    ? unit
                                                                               : unit + ", " + limits;
  if (!more.empty()) out += " [" + more + "]";
  return choices.empty() ? out : text(out, ": ", choices);
}

std::string explain(const std::string& key) {
  const std::vector<Field> all = shown_fields();
  std::string lines, exact;
  std::vector<std::string> known;
  for (const Field& field : all) {
    known.push_back(field.key);
    if (key.empty() || field.key.starts_with(key + ".")) lines += one_line(field);
    if (field.key == key || (leaf_of(field.key) == key && key.find('.') == std::string::npos))
      exact += (exact.empty() ? "" : "\n") + explain_field(field);
  }
  if (!exact.empty()) return exact;
  if (!lines.empty()) return lines;
  std::vector<AliasMatch> matches = find_aliases(key);
  if (matches.empty()) matches = find_aliases("--" + key);
  for (const AliasMatch& match : matches)
    for (const Field& field : all)
      if (field.key == shown_key(match.key)) exact += (exact.empty() ? "" : "\n") + explain_field(field);
  if (!exact.empty()) return exact;
  for (const Field& field : all)  // a part of the last word: batch_size
    if (("_" + leaf_of(field.key) + "_").find("_" + key + "_") != std::string::npos) lines += one_line(field);
  if (!lines.empty()) return lines;
  std::vector<std::string> leaves;
  for (const Field& field : all) leaves.push_back(leaf_of(field.key));
  std::string near = nearest(key, known);
  if (near.empty())
    if (const std::string leaf = nearest(leaf_of(key), leaves); !leaf.empty())
      near = known[static_cast<std::size_t>(std::ranges::find(leaves, leaf) - leaves.begin())];
  throw ConfigError(text("unknown key ", shortened(key), near.empty() ? "" : text("; did you mean \"", near, "\"?"),
                         "\n  fix: trireme config explain lists every key"));
}

std::string reference_markdown() {
  std::string out, section;
  for (const Field& field : shown_fields()) {
    if (section_of(field.key) != section) {
      section = section_of(field.key);
      out += text(out.empty() ? "" : "\n", "### [", section, "]\n\n| key | default | meaning |\n|---|---|---|\n");
    }
    out += text("| `", field.key.substr(section.size() + 1), "` | `", cell(toml_text(field.value)), "` | ",
                cell(meaning_of(field)), " |\n");
  }
  return out;
}

}  // namespace trireme::config
