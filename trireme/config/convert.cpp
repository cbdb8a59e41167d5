#include "trireme/config/convert.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

std::string without_underscores(std::string text) {
  std::erase(text, '_');  // 1_000_000, as TOML allows
  return text;
}

/// Each `read` gives the value as a T, or nothing when it is of another type.
std::optional<std::string> read(const Value& value, const std::string*) {
  if (const auto* v = std::get_if<std::string>(&value.data)) return *v;
  if (const auto* v = std::get_if<RawText>(&value.data)) return v->text;
  return std::nullopt;
}

std::optional<double> read(const Value& value, const double*) {
  if (const auto* v = std::get_if<double>(&value.data)) return *v;
  if (const auto* v = std::get_if<std::int64_t>(&value.data)) return static_cast<double>(*v);
  if (const auto* raw = std::get_if<RawText>(&value.data)) {
    const std::string digits = without_underscores(raw->text);
    double parsed = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), parsed);
    if (error == std::errc() && end == digits.data() + digits.size()) return parsed;
  }
  return std::nullopt;
}

std::optional<std::int64_t> read(const Value& value, const std::int64_t*) {
  if (const auto* v = std::get_if<std::int64_t>(&value.data)) return *v;
  if (const auto* raw = std::get_if<RawText>(&value.data)) {
    const std::string digits = without_underscores(raw->text);
    std::int64_t parsed = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), parsed);
    if (error == std::errc() && end == digits.data() + digits.size()) return parsed;
  }
  // 1e6 is a whole number to a person.
  const auto number = read(value, static_cast<const double*>(nullptr));
  if (number && std::floor(*number) == *number && std::abs(*number) < 9e15) return static_cast<std::int64_t>(*number);
  return std::nullopt;
}

std::optional<bool> read(const Value& value, const bool*) {
  if (const auto* v = std::get_if<bool>(&value.data)) return *v;
  if (const auto* raw = std::get_if<RawText>(&value.data)) {
    if (raw->text == "true" || raw->text.empty()) return true;  // --checkpoint.async alone switches it on
    if (raw->text == "false") return false;
  }
  return std::nullopt;
}

template <class T>
std::optional<std::vector<T>> read(const Value& value, const std::vector<T>*) {
  std::vector<T> out;
  const auto add = [&](const Value& element) {
    auto one = read(element, static_cast<const T*>(nullptr));
    if (one) out.push_back(std::move(*one));
    return one.has_value();
  };
  if (const auto* list = std::get_if<Values>(&value.data))
    return std::ranges::all_of(*list, add) ? std::optional(out) : std::nullopt;
  const auto* raw = std::get_if<RawText>(&value.data);
  if (raw == nullptr) return std::nullopt;
  // From a flag: 1,2,3 or [1, 2, 3].
  std::string words = raw->text;
  if (words.starts_with('[') && words.ends_with(']')) words = words.substr(1, words.size() - 2);
  for (std::size_t begin = 0; begin < words.size();) {
    const std::size_t end = std::min(words.find(',', begin), words.size());
    std::string word = words.substr(begin, end - begin);
    std::erase_if(word, [](char c) { return c == ' ' || c == '"'; });
    if (!word.empty() && !add({RawText{word}})) return std::nullopt;
    begin = end + 1;
  }
  return out;
}

const char* expected(const std::string&) { return "text"; }
const char* expected(std::int64_t) { return "a whole number"; }
const char* expected(double) { return "a number"; }
const char* expected(bool) { return "true or false"; }
const char* expected(const std::vector<std::string>&) { return "a list of texts"; }
const char* expected(const std::vector<std::int64_t>&) { return "a list of whole numbers"; }
const char* expected(const std::vector<double>&) { return "a list of numbers"; }

std::string number(double value) {
  return std::floor(value) == value && std::abs(value) < 1e15 ? std::to_string(static_cast<std::int64_t>(value))
                                                              : text(value);
}

std::string check(const Field& field, double value) {
  if (!std::isfinite(value)) return "is not a finite number";
  if (value < field.min) return text("is too small: at least ", number(field.min));
  if (field.above_min && value <= field.min) return text("is too small: it must be above ", number(field.min));
  if (value > field.max) return text("is too large: at most ", number(field.max));
  return "";
}
std::string check(const Field& field, std::int64_t value) { return check(field, static_cast<double>(value)); }
std::string check(const Field&, bool) { return ""; }
/// The choice that the word stands for, whatever its case: other trainers write AdamW and 1F1B.
const std::string* find_choice(const Field& field, const std::string& word) {
  const auto same_letter = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  const auto it = std::ranges::find_if(field.choices,
                                       [&](const std::string& c) { return std::ranges::equal(c, word, same_letter); });
  return it == field.choices.end() ? nullptr : &*it;
}
std::string check(const Field& field, const std::string& value) {
  if (value.find('\0') != std::string::npos) return "holds a NUL character";
  if (field.choices.empty() || find_choice(field, value) != nullptr) return "";
  std::string known;
  for (const std::string& choice : field.choices)
    known += (known.empty() ? "" : ", ") + (choice.empty() ? "\"\"" : choice);
  return "is none of: " + known;
}
template <class T>
std::string check(const Field& field, const std::vector<T>& values) {
  for (const T& value : values)
    if (const std::string problem = check(field, value); !problem.empty()) return problem;
  return "";
}

}  // namespace

std::string assign_value(const Field& field, const Value& value) {
  return std::visit(
      [&](auto* target) -> std::string {
        const auto parsed = read(value, target);
        if (!parsed) return text("is ", kind_of(value), ", not ", expected(*target));
        const std::string problem = check(field, *parsed);
        if (problem.empty()) *target = *parsed;
        if constexpr (std::is_same_v<decltype(target), std::string*>)
          if (problem.empty() && !field.choices.empty()) *target = *find_choice(field, *parsed);
        return problem;
      },
      field.value);
}

std::string plain_text(const Value& value) {
  return read(value, static_cast<const std::string*>(nullptr)).value_or("");
}

}  // namespace trireme
