#include "trireme/metrics/bar_chart.hpp"

#include <algorithm>

#include "trireme/base/drawing.hpp"

namespace trireme::metrics {

std::string draw_svg(const BarChart& chart) {
  constexpr double kLeft = 130, kLongest = 420, kWidth = 640, kRow = 28, kTop = 40;
  double largest = 0;
  for (const ChartBar& bar : chart.bars) largest = std::max(largest, bar.value);
  Drawing out(kTop + kRow * static_cast<double>(chart.bars.size()) + 12, chart.title, kWidth);
  out.label({12, 24}, chart.title, {.size = 15});
  for (std::size_t i = 0; i < chart.bars.size(); ++i) {
    const ChartBar& bar = chart.bars[i];
    const double y = kTop + kRow * static_cast<double>(i), length = largest > 0 ? kLongest * bar.value / largest : 0;
    out.label({kLeft - 8, y + 17}, bar.name, {.size = 13, .anchor = Anchor::end});
    out.rect(kLeft, y + 3, length, 20, {.fill = "#3b6ea5"});
    out.label({kLeft + length + 6, y + 17}, bar.shown, {.size = 13});
  }
  return out.svg();
}

}  // namespace trireme::metrics
