#include "trireme/metrics/line_chart.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "trireme/base/svg.hpp"

namespace trireme::metrics {
namespace {

constexpr double kWidth = 760, kHeight = 420, kLeft = 70, kRight = 210, kTop = 46, kBottom = 56;
constexpr std::array kColours{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#b8a000"};
constexpr std::array kDashes{"none", "7 3", "2 3"};

std::string number(double value, const char* format = "%.1f") {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string label(double x, double y, const std::string& text, const char* anchor = "middle", const char* extra = "") {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\"" + extra + ">" +
         xml_escaped(text) + "</text>\n";
}

}  // namespace

std::string draw_svg(const Chart& chart) {
  double most = 0;
  for (const ChartLine& line : chart.lines)
    for (const double y : line.y)
      if (std::isfinite(y)) most = std::max(most, y);
  const double tick = tick_step(most), top = std::max(tick, std::ceil(most / tick) * tick);
  const auto x_of = [&](std::size_t i) {
    const double step = (kWidth - kLeft - kRight) / static_cast<double>(std::max<std::size_t>(chart.x.size(), 1));
    return kLeft + step * (static_cast<double>(i) + 0.5);
  };
  const auto y_of = [&](double y) { return kHeight - kBottom - y / top * (kHeight - kTop - kBottom); };

  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + number(kWidth, "%.0f") + " " +
                    number(kHeight, "%.0f") +
                    "\" font-family=\"sans-serif\" font-size=\"12\">\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  out += label(kLeft, 24, chart.title, "start", " font-size=\"15\"");
  for (double y = 0; y <= top * 1.0001; y += tick) {
    out += "<line x1=\"" + number(kLeft) + "\" x2=\"" + number(kWidth - kRight) + "\" y1=\"" + number(y_of(y)) +
           "\" y2=\"" + number(y_of(y)) + "\" stroke=\"#ddd\"/>\n";
    out += label(kLeft - 8, y_of(y) + 4, number(y, "%g"), "end");
  }
  for (std::size_t i = 0; i < chart.x.size(); ++i) out += label(x_of(i), kHeight - kBottom + 18, chart.x[i]);
  out += label((kLeft + kWidth - kRight) / 2, kHeight - 14, chart.x_title);
  out += label(0, 0, chart.y_title, "middle",
               (" transform=\"translate(18 " + number((kTop + kHeight - kBottom) / 2) + ") rotate(-90)\"").c_str());
  for (std::size_t n = 0; n < chart.lines.size(); ++n) {
    const ChartLine& line = chart.lines[n];
    const std::string colour = kColours[n % kColours.size()];
    std::string points;
    for (std::size_t i = 0; i < line.y.size(); ++i)
      if (std::isfinite(line.y[i])) points += number(x_of(i)) + "," + number(y_of(line.y[i])) + " ";
    out += "<polyline points=\"" + points + "\" fill=\"none\" stroke=\"" + colour + "\" stroke-width=\"2\" " +
           "stroke-dasharray=\"" + kDashes[n / kColours.size() % kDashes.size()] + "\"/>\n";
    for (std::size_t i = 0; i < line.y.size(); ++i)
      if (std::isfinite(line.y[i]))
        out += "<circle cx=\"" + number(x_of(i)) + "\" cy=\"" + number(y_of(line.y[i])) + "\" r=\"3.5\" fill=\"" +
               colour + "\"><title>" + xml_escaped(line.name) + ", " + xml_escaped(chart.x[i]) + ": " +
               number(line.y[i], "%.4g") + "</title></circle>\n";
    const double y = kTop + 20 * static_cast<double>(n);
    out += "<rect x=\"" + number(kWidth - kRight + 16) + "\" y=\"" + number(y - 9) +
           "\" width=\"12\" height=\"12\" fill=\"" + colour + "\"/>\n" +
           label(kWidth - kRight + 34, y + 1, line.name, "start");
  }
  return out + "</svg>\n";
}

}  // namespace trireme::metrics
