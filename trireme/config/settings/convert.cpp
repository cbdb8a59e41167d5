#include "trireme/config/settings/convert.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "trireme/base/error.hpp"
#include "trireme/base/utf8.hpp"
#include "trireme/config/settings/toml_file.hpp"

namespace trireme::config {
namespace {

/// Removes what TOML allows and from_chars does not: the _ of 1_000_000 and a leading +.
std::string plain_digits(std::string text) {
  std::erase(text, '_');
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.erase(0, 1);
  return text;
}

template <class T>
std::optional<T> parsed(const std::string& word) {
  const std::string digits = plain_digits(word);
  T value{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc() && end == digits.data() + digits.size() ? std::optional(value) : std::nullopt;
}

/// Each `read` returns the value as a T, or nullopt if it has another type.
std::optional<std::string> read(const Value& value, const std::string*) {
  if (const auto* v = std::get_if<std::string>(&value.data)) return *v;
  if (const auto* v = std::get_if<RawText>(&value.data)) return v->text;
  return std::nullopt;
}

std::optional<double> read(const Value& value, const double*) {
  if (const auto* v = std::get_if<double>(&value.data)) return *v;
  if (const auto* v = std::get_if<std::int64_t>(&value.data)) return static_cast<double>(*v);
  const auto* raw = std::get_if<RawText>(&value.data);
  return raw == nullptr ? std::nullopt : parsed<double>(raw->text);
}

std::optional<Steps> read(const Value& value, const Steps*) {
  const auto number = read(value, static_cast<const double*>(nullptr));
  return number ? std::optional<Steps>(*number) : std::nullopt;
}

std::optional<std::int64_t> read(const Value& value, const std::int64_t*) {
  if (const auto* v = std::get_if<std::int64_t>(&value.data)) return *v;
  if (const auto* raw = std::get_if<RawText>(&value.data))
    if (const auto whole = parsed<std::int64_t>(raw->text)) return whole;
  // 1e6 is accepted as an integer.
  const auto number = read(value, static_cast<const double*>(nullptr));
  if (number && std::floor(*number) == *number && std::abs(*number) < 9e15) return static_cast<std::int64_t>(*number);
  return std::nullopt;
}

std::optional<bool> read(const Value& value, const bool*) {
  if (const auto* v = std::get_if<bool>(&value.data)) return *v;
  if (const auto* raw = std::get_if<RawText>(&value.data)) {
    if (raw->text == "true" || raw->text.empty()) return true;  // --checkpoint.async without a value means true
    if (raw->text == "false") return false;
  }
  return std::nullopt;
}

/// The elements of a list in TOML syntax, or nullopt: [a, b] without quotes is not TOML.
std::optional<Values> toml_list(const std::string& words) {
  try {
    const Settings settings = parse_toml("", "list = " + words);
    const bool is_list = settings.size() == 1 && std::holds_alternative<Values>(settings[0].value.data);
    return is_list ? std::optional(std::get<Values>(settings[0].value.data)) : std::nullopt;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

/// The elements of a list from a flag: 1,2,3 or [1, 2, 3], or in TOML syntax if an element contains a comma.
Values split_list(const std::string& words) {
  std::string_view rest = words;
  if (rest.starts_with('[') && rest.ends_with(']')) {
    if (auto list = toml_list(words)) return std::move(*list);
    rest = rest.substr(1, rest.size() - 2);
  }
  Values elements;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    std::string_view word = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    while (word.starts_with(' ')) word.remove_prefix(1);
    while (word.ends_with(' ')) word.remove_suffix(1);
    if (word.empty() && rest.empty()) break;
    if (word.size() > 1 && word.starts_with('"') && word.ends_with('"')) word = word.substr(1, word.size() - 2);
    elements.push_back({RawText{std::string(word)}});
  }
  return elements;
}

template <class T>
std::optional<std::vector<T>> read(const Value& value, const std::vector<T>*) {
  const auto* raw = std::get_if<RawText>(&value.data);
  const auto* list = std::get_if<Values>(&value.data);
  if (raw == nullptr && list == nullptr) {  // steps = 20: a list of one
    if constexpr (!std::is_same_v<T, std::string>)
      if (auto one = read(value, static_cast<const T*>(nullptr))) return std::vector<T>{std::move(*one)};
    return std::nullopt;
  }
  std::vector<T> out;
  for (const Value& element : raw != nullptr ? split_list(raw->text) : *list) {
    auto one = read(element, static_cast<const T*>(nullptr));
    if (!one) return std::nullopt;
    out.push_back(std::move(*one));
  }
  return out;
}

std::string number(double value) {
  return std::floor(value) == value && std::abs(value) < 1e15 ? std::to_string(static_cast<std::int64_t>(value))
                                                              : text(value);
}

std::string check(const Field& field, double value) {
  if (!std::isfinite(value)) return "is not a finite number";
  if (field.above_min && value <= field.min) return text("is too small: it must be above ", number(field.min));
  if (value < field.min) return text("is too small: at least ", number(field.min));
  if (field.below_max && value >= field.max) return text("is too large: it must be below ", number(field.max));
  if (value > field.max) return text("is too large: at most ", number(field.max));
  return "";
}
std::string check(const Field& field, std::int64_t value) { return check(field, static_cast<double>(value)); }
std::string check(const Field& field, const Steps& value) { return check(field, value.count); }
std::string check(const Field&, bool) { return ""; }
/// The choice that matches the word, ignoring case: other trainers write AdamW and 1F1B.
const std::string* find_choice(const Field& field, const std::string& word) {
  const auto same_letter = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  const auto it = std::ranges::find_if(field.choices,
                                       [&](const std::string& c) { return std::ranges::equal(c, word, same_letter); });
  return it == field.choices.end() ? nullptr : &*it;
}
std::string check(const Field& field, const std::string& value) {
  if (value.find('\0') != std::string::npos) return "holds a NUL character";
  if (valid_utf8(value) != value) return "is not UTF-8";
  if (value.empty() && field.filled) return "is empty";
  if (field.choices.empty() || find_choice(field, value) != nullptr) return "";
  std::string known;
  for (const std::string& choice : field.choices)
    known += (known.empty() ? "" : ", ") + (choice.empty() ? "\"\"" : choice);
  return "is not one of: " + known;
}
template <class T>
std::string check(const Field& field, const std::vector<T>& values) {
  for (const T& value : values)
    if (const std::string problem = check(field, value); !problem.empty()) return problem;
  return "";
}

/// What a value is, if it is not what was expected; a fraction is no text, even if a flag gave it.
std::string kind_for(const Value& value, const FieldValue& wanted) {
  const auto number = read(value, static_cast<const double*>(nullptr));
  const bool fraction = number && std::isfinite(*number) && std::floor(*number) != *number;
  return fraction && std::holds_alternative<std::int64_t*>(wanted) ? "a fraction" : kind_of(value);
}

}  // namespace

std::string assign_value(const Field& field, const Value& value) {
  return std::visit(
      [&](auto* target) -> std::string {
        const auto fitting = read(value, target);
        if (!fitting) return text("is ", kind_for(value, field.value), ", not ", type_word(field.value));
        const std::string problem = check(field, *fitting);
        if (problem.empty()) *target = *fitting;
        if constexpr (std::is_same_v<decltype(target), std::string*>)
          if (problem.empty() && !field.choices.empty()) *target = *find_choice(field, *fitting);
        return problem;
      },
      field.value);
}

std::string plain_text(const Value& value) {
  return read(value, static_cast<const std::string*>(nullptr)).value_or("");
}

std::optional<double> plain_number(const Value& value) { return read(value, static_cast<const double*>(nullptr)); }

}  // namespace trireme::config
