#include "tools/figures/terminal_picture.hpp"

#include <algorithm>
#include <array>

#include "trireme/base/drawing.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/svg.hpp"

namespace trireme::figures {
namespace {

constexpr double kColumnWidth = 7.2, kLineHeight = 17, kSide = (kPageWidth - kTerminalColumns * kColumnWidth) / 2;
constexpr double kTitleBar = 30, kMargin = 12, kTerminalFont = 12;
constexpr const char *kWindow = "#1b1f26", *kTitleFill = "#2c323b", *kLetters = "#d8dee6", *kDimLetters = "#8d97a5";
constexpr std::array kPalette{"#3b4048", "#f47067", "#6bc46d", "#d9a441", "#6cb6ff", "#dcbdfb", "#56d4dd", "#c5cdd6",
                              "#768390", "#ff938a", "#8ddb8c", "#f2cc60", "#96d0ff", "#eedcff", "#b3f0ff", "#ffffff"};

std::string colour_of(const CellLook& look) {
  if (look.colour >= 0) return kPalette[static_cast<std::size_t>(look.colour)];
  return look.dim ? kDimLetters : look.bold ? "#ffffff" : kLetters;
}

std::string number_of(double value) { return svg_number(value, 1); }

double left_of(std::size_t column) { return kSide + kColumnWidth * static_cast<double>(column); }

std::string block(std::size_t begin, std::size_t end, double top, const std::string& fill, double opacity) {
  return text("<rect x=\"", number_of(left_of(begin)), "\" y=\"", number_of(top), "\" width=\"",
              number_of(left_of(end) - left_of(begin)), "\" height=\"", number_of(kLineHeight), "\" fill=\"", fill,
              "\"", opacity < 1 ? text(" opacity=\"", number_of(opacity), "\"") : "", "/>\n");
}

/// Cells [begin, end) of a line, all with one look and without neighbouring spaces.
std::string words_at(const TerminalLine& line, std::size_t begin, std::size_t end, double top) {
  std::string words;
  for (std::size_t i = begin; i < end; ++i) words += line[i].glyph;
  const CellLook& look = line[begin].look;
  std::string out = text("<text x=\"", number_of(left_of(begin)), "\" y=\"", number_of(top + 12.5), "\"");
  if (end - begin > 1) out += text(" textLength=\"", number_of(left_of(end) - left_of(begin)), "\"");
  if (const std::string colour = colour_of(look); colour != kLetters) out += text(" fill=\"", colour, "\"");
  if (look.bold) out += " font-weight=\"bold\"";
  return out + text(">", xml_escaped(words), "</text>\n");
}

std::string draw_line(const TerminalLine& line, double top) {
  const auto is_space = [&](std::size_t i) { return line[i].glyph == " "; };
  const auto run_end = [&](std::size_t begin, auto belongs) {
    std::size_t end = begin + 1;
    while (end < line.size() && line[end].look == line[begin].look && belongs(end)) ++end;
    return end;
  };
  std::string out;
  for (std::size_t i = 0; i < line.size();) {
    const std::size_t end = run_end(i, [](std::size_t) { return true; });
    if (const int fill = line[i].look.background; fill >= 0)
      out += block(i, end, top, kPalette[static_cast<std::size_t>(fill)], 1);
    i = end;
  }
  for (std::size_t i = 0; i < line.size();) {
    const std::string& glyph = line[i].glyph;
    const bool is_full = glyph == "█", is_light = glyph == "░";
    std::size_t end = i + 1;
    if (is_full || is_light) {
      end = run_end(i, [&](std::size_t n) { return line[n].glyph == glyph; });
      out += block(i, end, top + 1, colour_of(line[i].look), is_full ? 1 : 0.2);
    } else if (!is_space(i)) {
      end = run_end(i, [&](std::size_t n) {
        if (line[n].glyph == "█" || line[n].glyph == "░") return false;
        return !is_space(n) || (n + 1 < line.size() && !is_space(n + 1) && line[n + 1].look == line[i].look);
      });
      while (is_space(end - 1)) --end;
      out += words_at(line, i, end, top);
    }
    i = end;
  }
  return out;
}

}  // namespace

std::string terminal_picture(const std::vector<TerminalLine>& lines, std::string_view title) {
  const double height = kTitleBar + 2 * kMargin + kLineHeight * static_cast<double>(lines.size());
  const std::string wide = number_of(kPageWidth), tall = number_of(height);
  std::string out =
      text("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", wide, "\" height=\"", tall, "\" viewBox=\"0 0 ", wide,
           " ", tall,
           "\" font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace\" font-size=\"",
           number_of(kTerminalFont), "\" fill=\"", kLetters, "\">\n<title>", xml_escaped(title),
           "</title>\n<rect width=\"", wide, "\" height=\"", tall, "\" rx=\"8\" fill=\"", kWindow,
           "\"/>\n<path d=\"M0 ", number_of(kTitleBar), " V8 A8 8 0 0 1 8 0 H", number_of(kPageWidth - 8),
           " A8 8 0 0 1 ", wide, " 8 V", number_of(kTitleBar), " Z\" fill=\"", kTitleFill, "\"/>\n");
  constexpr std::array kButtons{"#ee6a5f", "#f5bd4f", "#61c454"};
  for (std::size_t i = 0; i < kButtons.size(); ++i)
    out += text("<circle cx=\"", number_of(20 + 20 * static_cast<double>(i)), "\" cy=\"", number_of(kTitleBar / 2),
                "\" r=\"6\" fill=\"", kButtons[i], "\"/>\n");
  out += text("<text x=\"", number_of(kPageWidth / 2), "\" y=\"", number_of(kTitleBar / 2 + 4),
              "\" text-anchor=\"middle\" fill=\"", kDimLetters, "\">", xml_escaped(title), "</text>\n");
  for (std::size_t i = 0; i < lines.size(); ++i)
    out += draw_line(lines[i], kTitleBar + kMargin + kLineHeight * static_cast<double>(i));
  return out + "</svg>\n";
}

}  // namespace trireme::figures
