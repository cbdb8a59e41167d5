#include "trireme/base/human.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <string_view>

namespace trireme {
namespace {

std::string with_precision(double value, std::chars_format format, int precision) {
  std::array<char, 400> buffer;  // 1.8e308 in full has 309 digits
  return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format, precision).ptr};
}

/// A positive number rounded to three significant digits: 0.digits x 10^point. Kept as digits, because a later division
/// by a power of ten could round a second time.
struct ThreeDigits {
  std::string digits;
  int point;  // number of digits before the decimal point; may be negative

  explicit ThreeDigits(double value) {
    const std::string text = with_precision(value, std::chars_format::scientific, 2);  // d.dde[+-]xx
    digits = {text[0], text[2], text[3]};
    point = std::atoi(text.c_str() + 5) + 1;
  }
};

std::string place_point(std::string digits, int point) {
  const auto size = static_cast<int>(digits.size());
  if (point <= 0) return std::string("0.").append(static_cast<std::size_t>(-point), '0').append(digits);
  if (point >= size) return digits.append(static_cast<std::size_t>(point - size), '0');
  return digits.insert(static_cast<std::size_t>(point), 1, '.');
}

std::string without_trailing_zeros(std::string text) {
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

std::string negative(const std::string& text) { return std::string("-").append(text); }

int floor_divide(int a, int b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

std::string clock_text(double seconds) {
  const auto total = static_cast<std::int64_t>(std::llround(seconds));
  std::string out = std::to_string(total / 3600);
  for (const std::int64_t part : {total / 60 % 60, total % 60})
    out.append(part < 10 ? ":0" : ":").append(std::to_string(part));
  return out;
}

}  // namespace

std::string thousands(std::int64_t value) {
  std::string text = std::to_string(value);
  const std::size_t first_digit = value < 0 ? 1 : 0;
  for (std::size_t end = text.size(); end > first_digit + 3;) text.insert(end -= 3, 1, ',');
  return text;
}

std::string human_number(double value) { return with_precision(value, std::chars_format::general, 6); }

std::string human_count(double value) {
  if (!std::isfinite(value) || std::abs(value) < 1) return with_precision(value, std::chars_format::general, 3);
  if (value < 0) return negative(human_count(-value));
  constexpr std::array<std::string_view, 7> kUnits = {"", "K", "M", "B", "T", "P", "E"};
  const ThreeDigits rounded(value);
  const int unit = std::min((rounded.point - 1) / 3, static_cast<int>(kUnits.size()) - 1);
  return without_trailing_zeros(place_point(rounded.digits, rounded.point - 3 * unit))
      .append(kUnits[static_cast<std::size_t>(unit)]);
}

std::string human_bytes(double value) {
  if (!std::isfinite(value)) return human_number(value) + " B";
  if (value < 0) return negative(human_bytes(-value));
  constexpr std::array<std::string_view, 7> kUnits = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
  std::size_t unit = 0;
  // From 1023.5 on the value would be rounded to 1024.
  for (; value >= 1023.5 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  const ThreeDigits rounded(value);
  const bool whole = unit == 0 || rounded.point > 3;
  return (whole ? with_precision(value, std::chars_format::fixed, 0) : place_point(rounded.digits, rounded.point))
      .append(kUnits[unit]);
}

std::string human_seconds(double value) {
  if (value < 0) return negative(human_seconds(-value));
  if (!std::isfinite(value) || value > 1e15) return human_number(value) + " s";
  if (value == 0) return "0 s";
  const ThreeDigits rounded(value);
  if (rounded.point > 2 || (rounded.point == 2 && rounded.digits >= "600")) return clock_text(value);
  constexpr std::array<std::string_view, 4> kUnits = {" s", " ms", " µs", " ns"};
  const int unit = std::clamp(-floor_divide(rounded.point - 1, 3), 0, static_cast<int>(kUnits.size()) - 1);
  return without_trailing_zeros(place_point(rounded.digits, rounded.point + 3 * unit))
      .append(kUnits[static_cast<std::size_t>(unit)]);
}

}  // namespace trireme
