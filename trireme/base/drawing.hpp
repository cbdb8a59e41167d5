#pragma once
// An SVG image of shapes and words on white: charts, schedules and the figures of the docs. Those of the report have
// its style.
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

inline constexpr double kPageWidth = 760;  // of the documentation

inline constexpr const char *kInk = "#1f2328", *kDimInk = "#59636e", *kFaint = "#d1d9e0", *kIdle = "#e3e8ed";

/// Filled and outlined; an empty colour is left out.
struct ShapeLook {
  std::string fill = {}, stroke = {};
  double stroke_width = 1, radius = 0, opacity = 1;
  std::string dashes = {};  // "4 3": four on, three off
  std::string tip = {};     // shown when a pointer is over it
};

enum class Anchor { start, middle, end };

struct LabelLook {
  double size = 12;
  Anchor anchor = Anchor::start;
  std::string colour = kInk;
  bool bold = false;
  bool halo = false;     // white around the letters, for words on a grid
  bool upwards = false;  // rotated by 90 degrees: read from bottom to top
};

/// Where words are, by an estimate of the width of their letters: for tests.
struct LabelBox {
  std::string words;
  double left = 0, top = 0, right = 0, bottom = 0, size = 0;
};

struct Point {
  double x = 0, y = 0;
};

class Drawing {
 public:
  /// `description` is what a screen reader says.
  Drawing(double height, std::string description, double width = kPageWidth);

  void rect(double x, double y, double width, double height, const ShapeLook& look);
  void polygon(const std::vector<Point>& corners, const ShapeLook& look);
  void circle(Point centre, double radius, const ShapeLook& look);
  void line(Point from, Point to, const ShapeLook& look);
  void polyline(const std::vector<Point>& points, const ShapeLook& look);
  /// A line with a head at its end.
  void arrow(Point from, Point to, const ShapeLook& look);
  /// An S-shaped curve between two points, vertical at both.
  void curve(Point from, Point to, const ShapeLook& look);
  /// `at` is on the baseline of the letters.
  void label(Point at, std::string_view words, const LabelLook& look = {});

  double height() const { return height_; }
  const std::vector<LabelBox>& labels() const { return labels_; }
  std::string svg() const;

 private:
  void add(std::string_view name, const std::string& attributes, const ShapeLook& look);

  double width_, height_;
  std::string description_, body_;
  std::vector<LabelBox> labels_;
};

/// Of a sans-serif font, as wide as the widest that browsers use.
double estimated_width(std::string_view words, double size, bool bold = false);

}  // namespace trireme
