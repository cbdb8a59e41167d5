#pragma once
// A bar chart as an SVG image.
#include <string>
#include <vector>

namespace trireme::metrics {

struct ChartBar {
  std::string name;
  double value = 0;
  std::string shown;  // the value, for people
};

struct BarChart {
  std::string title;
  std::vector<ChartBar> bars;
};

/// Horizontal bars from 0, in their order.
std::string draw_svg(const BarChart& chart);

}  // namespace trireme::metrics
