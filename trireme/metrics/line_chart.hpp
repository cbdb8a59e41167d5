#pragma once
// A line chart as an SVG image.
#include <string>
#include <vector>

namespace trireme::metrics {

struct ChartLine {
  std::string name;
  std::vector<double> y;  // one per label of the x axis; NaN: no point
};

struct Chart {
  std::string title = {}, x_title = {}, y_title = {};
  std::vector<std::string> x = {};  // labels, evenly spaced
  std::vector<ChartLine> lines = {};
};

/// The y axis begins at 0. Colours and dashes differ between lines; a tooltip shows the value of a point.
std::string draw_svg(const Chart& chart);

}  // namespace trireme::metrics
