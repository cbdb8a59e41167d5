#include "trireme/config/read/flags.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/config/settings/nearest.hpp"
#include "trireme/config/translate/aliases.hpp"

namespace trireme::config {
namespace {

/// Boolean flags, ours and those of other trainers, take no value.
FlagWords words_of_flag(const std::string& path, const std::vector<Field>& all) {
  const auto field = std::ranges::find(all, path, &Field::key);
  if (field != all.end()) return std::holds_alternative<bool*>(field->value) ? FlagWords::none : FlagWords::one;
  const std::vector<AliasMatch> aliases = find_aliases(path);
  if (aliases.empty()) return FlagWords::one;
  const Translation translation = aliases.front().alias->translate;
  const auto ours = std::ranges::find(all, aliases.front().key, &Field::key);
  const bool is_switch = ours != all.end() && std::holds_alternative<bool*>(ours->value);
  return is_switch && translation == translations::same ? FlagWords::none : words_of(translation);
}

/// A flag among the words of a command line.
struct FoundFlag {
  std::size_t begin, end;  // of its words
  std::string flag, path, value;
};

/// `other`: gets each word that is not of a flag.
template <class Other>
std::vector<FoundFlag> find_flags(const std::vector<std::string>& words, const Other& other) {
  std::vector<FoundFlag> found;
  Config config;
  const std::vector<Field> all = fields(config);
  for (std::size_t i = 0; i < words.size();) {
    const std::size_t begin = i;
    const std::string& word = words[i++];
    const std::size_t equals = word.find('=');
    const std::string flag = word.substr(0, equals);
    const std::vector<AliasMatch> aliases = find_aliases(flag);  // Megatron's flags keep their dashes
    if (!flag.starts_with("--") || (flag.find('.') == std::string::npos && aliases.empty())) {
      other(word);
      continue;
    }
    const std::string path = aliases.empty() ? flag.substr(2) : flag;
    const FlagWords takes = words_of_flag(path, all);

    std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (equals == std::string::npos) {
      const auto is_value = [&] {
        if (i == words.size() || words[i].starts_with("--")) return false;
        return takes != FlagWords::none || words[i] == "true" || words[i] == "false";
      };
      require<ConfigError>(takes == FlagWords::none || is_value(), shortened(flag), " has no value\n  fix: write ",
                           shortened(flag), " VALUE");
      for (bool more = true; more && is_value(); ++i) {
        value += (value.empty() ? "" : " ") + words[i];
        more = takes == FlagWords::many;
      }
    }
    found.push_back({begin, i, flag, path, value});
  }
  return found;
}

}  // namespace

Settings take_flags(const std::vector<std::string>& words, std::vector<std::string>& rest) {
  Settings settings;
  if (words.empty()) return settings;
  for (const FoundFlag& f : find_flags(words, [&](const std::string& word) { rest.push_back(word); }))
    settings.push_back(
        {f.path, {RawText{f.value}}, {"", 0, 0, shortened(f.value.empty() ? f.flag : f.flag + " " + f.value)}});
  return settings;
}

std::vector<std::string> without_repeated(const std::vector<std::string>& words, std::vector<std::string>& repeated) {
  const std::vector<FoundFlag> found = find_flags(words, [](const std::string&) {});
  std::vector<bool> dropped(words.size(), false);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto later = std::find_if(found.begin() + static_cast<std::ptrdiff_t>(i) + 1, found.end(),
                                    [&](const FoundFlag& other) { return other.path == found[i].path; });
    if (later == found.end()) continue;
    std::fill(dropped.begin() + static_cast<std::ptrdiff_t>(found[i].begin),
              dropped.begin() + static_cast<std::ptrdiff_t>(found[i].end), true);
    if (std::ranges::find(repeated, found[i].flag) == repeated.end()) repeated.push_back(found[i].flag);
  }
  std::vector<std::string> out;
  for (std::size_t i = 0; i < words.size(); ++i)
    if (!dropped[i]) out.push_back(words[i]);
  return out;
}

std::vector<std::string> settings_like(const std::string& flag) {
  std::string word = flag.substr(0, flag.find('='));
  word.erase(0, word.find_first_not_of('-'));
  std::ranges::replace(word, '-', '_');
  Config config;
  const std::vector<Field> all = fields(config);
  const auto with_leaf = [&](const std::string& leaf) {
    std::vector<std::string> found;
    for (const Field& field : all)
      if (leaf_of(field.key) == leaf) found.push_back("--" + field.key);
    return found;
  };
  if (std::vector<std::string> same = with_leaf(word); !same.empty()) return same;
  std::vector<std::string> leaves;
  for (const Field& field : all) leaves.push_back(leaf_of(field.key));
  const std::string near = nearest(word, leaves);
  return near.empty() ? std::vector<std::string>() : with_leaf(near);
}

Settings parse_flags(const std::vector<std::string>& words) {
  std::vector<std::string> rest;
  Settings settings = take_flags(words, rest);
  require<ConfigError>(rest.empty(), "'", rest.empty() ? "" : shortened(rest.front()),
                       "' is not a setting\n  fix: write --section.key VALUE, such as --training.steps 50");
  return settings;
}

}  // namespace trireme::config
