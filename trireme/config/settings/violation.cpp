#include "trireme/config/settings/violation.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/base/utf8.hpp"

namespace trireme::config {
namespace {

std::string at_length(const Violation& v) {
  std::string out = v.headline;
  const std::string place = str(v.place);
  if (!v.excerpt.empty()) {
    // The word is marked under its line, followed by the reason.
    const std::string head = "  --> " + place + "   ";
    const auto indent = static_cast<std::size_t>(std::max(1, v.word_column) - 1);
    out += "\n" + head + v.excerpt + "\n" + std::string(display_width(head) + indent, ' ') +
           std::string(static_cast<std::size_t>(v.word_length), '^') + " " + v.detail;
  } else if (!place.empty()) {
    out += "\n  --> " + place + (v.detail.empty() ? "" : "  " + v.detail);
  } else if (!v.detail.empty()) {
    out += "\n  " + v.detail;
  }
  if (!v.launch.empty()) out += "\n  launch: " + v.launch;
  if (!v.fix.empty()) out += "\n  fix: " + v.fix;
  return out;
}

}  // namespace

std::string report(const std::vector<Violation>& violations) {
  if (violations.size() == 1) return at_length(violations.front());
  const auto headline = [](const Violation& v) {
    std::string line = v.in_list.empty() ? v.headline : v.in_list;
    for (std::size_t end; (end = line.find('\n')) != std::string::npos;)
      line.replace(end, std::max<std::size_t>(1, line.find_first_not_of(" \n", end) - end), "; ");
    return line;
  };
  std::size_t place_width = 0, headline_width = 0;
  for (const Violation& v : violations) {
    place_width = std::max(place_width, display_width(str(v.place)));
    headline_width = std::max(headline_width, display_width(headline(v)));
  }
  const auto padded = [](std::string word, std::size_t width) {
    return word + std::string(width - display_width(word), ' ');
  };
  std::string out = text(violations.size(), " config errors (nothing was started)");
  for (std::size_t i = 0; i < violations.size(); ++i) {
    const Violation& v = violations[i];
    const std::string hint = v.fix.empty() ? v.detail : v.fix;
    out += text("\n  ", i + 1, ". ", padded(str(v.place), place_width), "  ",
                hint.empty() ? headline(v) : padded(headline(v), headline_width) + "   " + hint);
  }
  return out;
}

void throw_if_any(const std::vector<Violation>& violations) {
  if (!violations.empty()) throw ConfigError(report(violations));
}

}  // namespace trireme::config
