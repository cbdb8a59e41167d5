#include "trireme/metrics/log_item.hpp"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <string_view>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"

namespace trireme::metrics {
namespace {

struct Format {
  bool commas = false;
  std::optional<int> precision{};
  char type = '\0';  // '\0': none given

  bool is_default() const { return !commas && !precision && type == '\0'; }
};

/// nullopt if `text` is not of the form [,][.N][type].
std::optional<Format> parse_format(std::string_view text) {
  Format format;
  if (text.starts_with(',')) {
    format.commas = true;
    text.remove_prefix(1);
  }
  if (text.starts_with('.')) {
    int precision = 0;
    const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), precision);
    if (error != std::errc() || precision < 0 || precision > 99) return std::nullopt;
    format.precision = precision;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
  if (text.size() > 1 || (text.size() == 1 && std::string_view("eEfFgG%d").find(text[0]) == std::string_view::npos)) {
    return std::nullopt;
  }
  if (!text.empty()) format.type = text[0];
  return format;
}

/// Puts commas into the digits before the point or exponent.
std::string with_commas(std::string text) {
  const std::size_t first_digit = text.starts_with('-') ? 1 : 0;
  std::size_t end = first_digit;
  while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
  while (end > first_digit + 3) text.insert(end -= 3, 1, ',');
  return text;
}

std::string format_double(double value, const Format& format) {
  std::array<char, 512> buffer;  // 309 digits of the largest double, 99 decimals
  char* const end = buffer.data() + buffer.size();
  if (format.type == '\0' && !format.precision) {  // "," alone; in full, except for very long numbers
    const bool readable = std::abs(value) < 1e16 && (value == 0 || std::abs(value) >= 1e-4);
    const auto style = readable ? std::chars_format::fixed : std::chars_format::general;
    return with_commas({buffer.data(), std::to_chars(buffer.data(), end, value, style).ptr});
  }
  const char type = static_cast<char>(std::tolower(format.type == '\0' ? 'g' : format.type));
  const auto style = type == 'e'   ? std::chars_format::scientific
                     : type == 'g' ? std::chars_format::general
                                   : std::chars_format::fixed;
  const double shown = type == '%' ? 100 * value : value;
  std::string text(buffer.data(), std::to_chars(buffer.data(), end, shown, style, format.precision.value_or(6)).ptr);
  if (std::isupper(format.type) != 0) {
    for (char& c : text) c = static_cast<char>(std::toupper(c));
  }
  if (format.commas) text = with_commas(text);
  if (type == '%') text += '%';
  return text;
}

[[noreturn]] void refuse(const LogItem& item, std::string_view why) {
  throw ConfigError(text("log item \"", item.tag, "\": log_format \"", *item.log_format, "\" ", why,
                         "\n  fix: use \"human_format\", or [,][.N][eEfFgG%d] as in \".3E\", \".4f\", \",\""));
}

/// Throws if Python would too.
Format checked_format(const LogItem& item) {
  const std::optional<Format> format = parse_format(*item.log_format);
  if (!format) refuse(item, "is not known");
  const bool integer = std::holds_alternative<std::int64_t>(item.scalar_value);
  if (format->type == 'd' && !integer) refuse(item, "is for integers, and the value is not one");
  if (format->type == 'd' && format->precision) refuse(item, "has a precision, which integers do not take");
  if (format->type == '\0' && format->precision && integer) refuse(item, "has a precision, which integers do not take");
  return *format;
}

bool is_human(const LogItem& item) { return item.log_format == "human_format"; }

}  // namespace

std::string format_scalar(const LogItem& item) {
  const auto* integer = std::get_if<std::int64_t>(&item.scalar_value);
  const double value = integer != nullptr ? static_cast<double>(*integer) : std::get<double>(item.scalar_value);
  if (is_human(item)) return human_count(value);
  const Format format = item.log_format ? checked_format(item) : Format{};
  if (integer != nullptr && (format.type == '\0' || format.type == 'd')) {
    return format.commas ? thousands(*integer) : std::to_string(*integer);
  }
  return format.is_default() ? human_number(value) : format_double(value, format);
}

void check_formats(const std::vector<LogItem>& entries) {
  for (const LogItem& item : entries) {
    if (item.log_format && !is_human(item)) checked_format(item);
  }
}

}  // namespace trireme::metrics
