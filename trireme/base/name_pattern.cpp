#include "trireme/base/name_pattern.hpp"

#include <algorithm>
#include <map>
#include <regex>
#include <string_view>

#include <fnmatch.h>

#include "trireme/base/edit_distance.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

constexpr std::string_view kRegex = "re:";

std::size_t longest_common_part(std::string_view a, std::string_view b) {
  std::size_t longest = 0;
  std::vector<std::size_t> last(b.size() + 1), row(b.size() + 1);
  for (const char letter : a) {
    for (std::size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = letter == b[j] ? last[j] + 1 : 0;
      longest = std::max(longest, row[j + 1]);
    }
    std::swap(last, row);
  }
  return longest;
}

/// "attention" and "norm" of "attention_norm".
std::vector<std::string_view> words_of_name(std::string_view name) {
  constexpr std::size_t kLongest = 64;  // the distance of longer ones costs too much
  std::vector<std::string_view> words;
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find_first_of("._*", begin), name.size());
    if (end > begin) words.push_back(name.substr(begin, std::min(end - begin, kLongest)));
    begin = end + 1;
  }
  return words;
}

/// The letters that a word of the one has in common with a word of the other, if most are in common: 3 of "nrom" and
/// "norm".
std::size_t letters_of_similar_words(std::string_view a, std::string_view b) {
  std::size_t most = 0;
  for (const std::string_view x : words_of_name(a)) {
    for (const std::string_view y : words_of_name(b)) {
      const std::size_t longer = std::max(x.size(), y.size()), distance = edit_distance(x, y);
      if (2 * distance <= longer) most = std::max(most, longer - distance);
    }
  }
  return most;
}

/// "layers.*.mlp.up.weight" of "layers.7.mlp.up.weight".
std::string without_layer(const std::string& name) {
  std::string out;
  for (const char c : name) {
    if (c < '0' || c > '9')
      out += c;
    else if (!out.ends_with('*'))
      out += '*';
  }
  return out;
}

}  // namespace

std::regex checked_regex(const std::string& expression) {
  constexpr std::size_t kLongest = 1000;  // std::regex recurses over its text
  require<ConfigError>(expression.size() <= kLongest, "a regular expression of ", expression.size(),
                       " characters: at most ", kLongest);
  try {
    return std::regex(expression);
  } catch (const std::regex_error& e) {
    throw ConfigError(text("\"", expression, "\" is not a regular expression: ", e.what()));
  }
}

NamePattern::NamePattern(const std::string& pattern) : pattern_(pattern) {
  if (pattern.starts_with(kRegex)) regex_ = std::make_shared<std::regex>(checked_regex(pattern.substr(kRegex.size())));
}

bool NamePattern::matches(const std::string& name) const {
  if (regex_) return std::regex_search(name, *regex_);
  if (pattern_.find_first_of("*?[") != std::string::npos) return fnmatch(pattern_.c_str(), name.c_str(), 0) == 0;
  return name.find(pattern_) != std::string::npos;
}

std::vector<NamePattern> name_patterns(const std::vector<std::string>& patterns) {
  return {patterns.begin(), patterns.end()};
}

bool matches_any(const std::vector<NamePattern>& patterns, const std::string& name) {
  return std::ranges::any_of(patterns, [&](const NamePattern& pattern) { return pattern.matches(name); });
}

std::vector<std::string> nearest_names(const std::string& pattern, const std::vector<std::string>& names) {
  std::string letters = pattern.starts_with(kRegex) ? pattern.substr(kRegex.size()) : pattern;
  std::erase_if(letters, [](char c) { return std::string_view("*?[]()^$\\|+{}").find(c) != std::string_view::npos; });
  std::vector<std::pair<std::size_t, std::string>> scored;
  for (const std::string& name : names) {
    const std::string kind = without_layer(name);
    if (std::ranges::find(scored, kind, &std::pair<std::size_t, std::string>::second) == scored.end())
      scored.emplace_back(std::max(longest_common_part(letters, kind), letters_of_similar_words(letters, kind)), kind);
  }
  std::ranges::stable_sort(scored, std::ranges::greater(), &std::pair<std::size_t, std::string>::first);
  std::vector<std::string> nearest;
  for (const auto& [score, name] : scored)
    if (nearest.size() < 3) nearest.push_back(name);
  return nearest;
}

}  // namespace trireme
