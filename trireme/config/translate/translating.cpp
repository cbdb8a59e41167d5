#include "trireme/config/translate/translating.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/config/settings/convert.hpp"
#include "trireme/config/translate/translations.hpp"

namespace trireme::config::translating {

std::string lower(std::string word) {
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return word;
}

std::string word_of(const Value& value) {
  const bool is_text = std::holds_alternative<std::string>(value.data) || std::holds_alternative<RawText>(value.data);
  return is_text ? plain_text(value) : str(value);
}

std::optional<double> number_of(const Value& value) {
  return std::holds_alternative<std::string>(value.data) ? plain_number({RawText{plain_text(value)}})
                                                         : plain_number(value);
}

double number_or_throw(const Setting& s) {
  const auto number = number_of(s.value);
  require<ConfigError>(number.has_value() && std::isfinite(*number), s.path, " = ", brief(s.value), " is not a number");
  return *number;
}

std::int64_t whole_or_throw(const Setting& s) {
  const double number = number_or_throw(s);
  require<ConfigError>(std::floor(number) == number && std::abs(number) < 1e15, s.path, " = ", brief(s.value),
                       " is not a whole number");
  return static_cast<std::int64_t>(number);
}

bool truth_of(const Setting& s) {
  if (const auto* v = std::get_if<bool>(&s.value.data)) return *v;
  const std::string word = lower(word_of(s.value));
  if (word.empty() || word == "true" || word == "1") return true;
  require<ConfigError>(word == "false" || word == "0", s.path, " = ", brief(s.value), " is not true or false");
  return false;
}

Settings one(const Setting& s, const std::string& key, Value value) { return {{key, std::move(value), s.place}}; }

Settings by_table(const Setting& s, const std::string& key, const Words& table) {
  const auto it = table.find(lower(word_of(s.value)));
  if (it == table.end()) {
    std::string known;
    for (const auto& [word, value] : table) known += (known.empty() ? "" : ", ") + (word.empty() ? "\"\"" : word);
    throw NoCounterpart(text(s.path, " = ", brief(s.value), " has no counterpart here (known: ", known, ")"));
  }
  return one(s, key, it->second);
}

}  // namespace trireme::config::translating
