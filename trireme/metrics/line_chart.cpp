#include "trireme/metrics/line_chart.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "trireme/base/drawing.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/svg.hpp"

namespace trireme::metrics {
namespace {

constexpr double kWidth = 760, kHeight = 420, kLeft = 70, kRight = 210, kTop = 46, kBottom = 56;
constexpr std::array kColours{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#b8a000"};
constexpr std::array kDashes{"", "7 3", "2 3"};

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

  Drawing out(kHeight, chart.title, kWidth);
  out.label({kLeft, 24}, chart.title, {.size = 15});
  for (const double y : ticks_between(0, top)) {
    out.line({kLeft, y_of(y)}, {kWidth - kRight, y_of(y)}, {.stroke = kFaint});
    out.label({kLeft - 8, y_of(y) + 4}, human_number(y), {.anchor = Anchor::end});
  }
  for (std::size_t i = 0; i < chart.x.size(); ++i)
    out.label({x_of(i), kHeight - kBottom + 18}, chart.x[i], {.anchor = Anchor::middle});
  out.label({(kLeft + kWidth - kRight) / 2, kHeight - 14}, chart.x_title, {.anchor = Anchor::middle});
  out.label({18, (kTop + kHeight - kBottom) / 2}, chart.y_title, {.anchor = Anchor::middle, .upwards = true});
  for (std::size_t n = 0; n < chart.lines.size(); ++n) {
    const ChartLine& line = chart.lines[n];
    const std::string colour = kColours[n % kColours.size()];
    std::vector<Point> points;
    for (std::size_t i = 0; i < line.y.size(); ++i)
      if (std::isfinite(line.y[i])) points.push_back({x_of(i), y_of(line.y[i])});
    out.polyline(points,
                 {.stroke = colour, .stroke_width = 2, .dashes = kDashes[n / kColours.size() % kDashes.size()]});
    for (std::size_t i = 0; i < line.y.size(); ++i)
      if (std::isfinite(line.y[i]))
        out.circle({x_of(i), y_of(line.y[i])}, 3.5,
                   {.fill = colour, .tip = text(line.name, ", ", chart.x[i], ": ", human_number(line.y[i]))});
    const double y = kTop + 20 * static_cast<double>(n);
    out.rect(kWidth - kRight + 16, y - 9, 12, 12, {.fill = colour});
    out.label({kWidth - kRight + 34, y + 1}, line.name);
  }
  return out.svg();
}

}  // namespace trireme::metrics
