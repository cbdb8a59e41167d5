#pragma once
// A plot over steps or time: an SVG that is stretched to the width of the page, with labels in HTML, so that text has
// the same size on a phone. The script of the page reads its data for the nearest point; without it all is still shown.
#include <optional>
#include <string>
#include <vector>

namespace trireme::report {

/// Colours are names of the style sheet (style.cpp): "forward" is --c-forward.
struct PlotLine {
  std::string name, colour;
  std::vector<double> x, y;  // NaN: no point
  enum class Look { thin, thick, dots, dashed } look = Look::thick;
  bool right_axis = false;
  std::string key{};  // lines with one key are hidden together by its legend entry; empty: `name`
};

/// Between two lines.
struct PlotBand {
  std::string name, colour;
  std::vector<double> x, low, high;
};

/// Areas on top of each other, the first one lowest. All have the x of the stack.
struct PlotStack {
  struct Part {
    std::string name, colour;
    std::vector<double> y;
  };
  std::vector<double> x;
  std::vector<Part> parts;
};

/// A tick at the bottom (checkpoint), a ring around a point (spike) or a line from top to bottom (another layout).
struct PlotMark {
  enum class Kind { tick, ring, line } kind;
  double x = 0, y = 0;
  std::string title{};
};

struct PlotAxis {
  std::string title{};
  enum class Unit { number, count, seconds, bytes, percent, scientific } unit = Unit::number;
  std::optional<double> low{}, high{};  // of the range; else by the data
};

struct Plot {
  PlotAxis x{}, y{}, right{};
  std::vector<PlotBand> bands{};
  std::vector<PlotStack> stacks{};  // at most one
  std::vector<PlotLine> lines{};
  std::vector<PlotMark> marks{};
  std::string marks_name{};  // of a legend entry for the rings
  std::string ticks_name{};  // likewise for the ticks
  std::string lines_name{};  // and for the lines
  std::string note_html{};   // above the right end
  int height = 260;          // pixels
  bool legend = true;
};

std::string plot_html(const Plot& plot);

/// A value as an axis shows it.
std::string axis_text(double value, PlotAxis::Unit unit);

/// At most `most` points: of each bucket the lowest and the highest. What is drawn looks the same.
void thin_out(std::vector<double>& x, std::vector<double>& y, std::size_t most = 1600);

}  // namespace trireme::report
