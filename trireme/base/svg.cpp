#include "trireme/base/svg.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "trireme/base/utf8.hpp"

namespace trireme {

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : valid_utf8(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n')
          out += "\uFFFD";
        else
          out += c;
    }
  }
  return out;
}

std::string svg_number(double value, int digits) {
  if (!std::isfinite(value)) return "0";
  std::array<char, 400> buffer;
  const auto [end, error] =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed, digits);
  std::string out(buffer.data(), end);
  if (out.find('.') != std::string::npos) {
    while (out.back() == '0') out.pop_back();
    if (out.back() == '.') out.pop_back();
  }
  return out == "-0" ? "0" : out;
}

double tick_step(double range, int most) {
  if (!(range > 0) || !std::isfinite(range)) return 1;
  const double power = std::pow(10, std::floor(std::log10(range / most)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (range / (factor * power) <= most) return factor * power;
  return 10 * power;
}

std::vector<double> ticks_between(double low, double high, int most) {
  std::vector<double> ticks;
  const double step = tick_step(high - low, most);
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step && ticks.size() < 100; ++i)
    ticks.push_back(i * step + 0.0);  // not -0
  return ticks;
}

}  // namespace trireme
