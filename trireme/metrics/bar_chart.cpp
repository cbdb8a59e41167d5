#include "trireme/metrics/bar_chart.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/base/svg.hpp"

namespace trireme::metrics {

std::string draw_svg(const BarChart& chart) {
  constexpr double kLeft = 130, kWidth = 420, kRow = 28, kTop = 40;
  double largest = 0;
  for (const ChartBar& bar : chart.bars) largest = std::max(largest, bar.value);
  const double height = kTop + kRow * static_cast<double>(chart.bars.size()) + 12;
  std::string out =
      text(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 )", svg_number(height),
           R"(" font-family="sans-serif" font-size="13"><rect width="640" height=")", svg_number(height),
           R"(" fill="white"/><text x="12" y="24" font-size="15">)", xml_escaped(chart.title), "</text>\n");
  for (std::size_t i = 0; i < chart.bars.size(); ++i) {
    const ChartBar& bar = chart.bars[i];
    const double y = kTop + kRow * static_cast<double>(i), width = largest > 0 ? kWidth * bar.value / largest : 0;
    out += text(R"(<text x=")", svg_number(kLeft - 8), R"(" y=")", svg_number(y + 17), R"(" text-anchor="end">)",
                xml_escaped(bar.name), R"(</text><rect x=")", svg_number(kLeft), R"(" y=")", svg_number(y + 3),
                R"(" width=")", svg_number(width), R"(" height="20" fill="#3b6ea5"/><text x=")",
                svg_number(kLeft + width + 6), R"(" y=")", svg_number(y + 17), R"(">)", xml_escaped(bar.shown),
                "</text>\n");
  }
  return out + "</svg>\n";
}

}  // namespace trireme::metrics
