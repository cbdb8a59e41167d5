#include "trireme/base/drawing.hpp"

#include <cmath>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/svg.hpp"

namespace trireme {
namespace {

std::string attribute(const char* name, double value) { return text(" ", name, "=\"", svg_number(value, 1), "\""); }

std::string look_attributes(const ShapeLook& look) {
  std::string out = text(" fill=\"", look.fill.empty() ? "none" : look.fill, "\"");
  if (!look.stroke.empty()) {
    out += text(" stroke=\"", look.stroke, "\"");
    if (look.stroke_width != 1) out += attribute("stroke-width", look.stroke_width);
    if (!look.dashes.empty()) out += text(" stroke-dasharray=\"", look.dashes, "\"");
  }
  if (look.radius > 0) out += attribute("rx", look.radius);
  if (look.opacity < 1) out += text(" opacity=\"", svg_number(look.opacity, 2), "\"");
  return out;
}

std::string point_text(Point at) { return text(svg_number(at.x, 1), " ", svg_number(at.y, 1)); }

std::string points_attribute(const std::vector<Point>& points) {
  std::string out;
  for (const Point& point : points) out += (out.empty() ? "" : " ") + point_text(point);
  return text(" points=\"", out, "\"");
}

const char* anchor_name(Anchor anchor) {
  return anchor == Anchor::middle ? "middle" : anchor == Anchor::end ? "end" : "start";
}

LabelBox box_around(Point at, std::string_view words, const LabelLook& look) {
  const double width = estimated_width(words, look.size, look.bold);
  const double before = look.anchor == Anchor::middle ? width / 2 : look.anchor == Anchor::end ? width : 0;
  const double ascent = 0.75 * look.size, descent = 0.2 * look.size;
  LabelBox box{.words = std::string(words), .size = look.size};
  if (look.upwards) {
    box.left = at.x - ascent, box.right = at.x + descent;
    box.bottom = at.y + before, box.top = box.bottom - width;
  } else {
    box.left = at.x - before, box.right = box.left + width;
    box.top = at.y - ascent, box.bottom = at.y + descent;
  }
  return box;
}

}  // namespace

double estimated_width(std::string_view words, double size, bool bold) {
  double em = 0;
  for (const char c : words) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0) == 0x80) continue;  // the rest of a letter that began before
    if (byte >= 0x80 || (c >= 'A' && c <= 'Z') || c == 'm' || c == 'w' || c == '%' || c == '_')
      em += 0.78;
    else if (c == ' ' || c == '.' || c == ',' || c == ':' || c == 'i' || c == 'l' || c == 'j' || c == '(' || c == ')')
      em += 0.33;
    else if (c == 'f' || c == 't' || c == 'r' || c == '-')
      em += 0.42;
    else
      em += 0.63;
  }
  return em * size * (bold ? 1.12 : 1);
}

Drawing::Drawing(double height, std::string description, double width)
    : width_(width), height_(height), description_(std::move(description)) {}

void Drawing::add(std::string_view name, const std::string& attributes, const ShapeLook& look) {
  body_ += text("<", name, attributes, look_attributes(look));
  body_ += look.tip.empty() ? "/>\n" : text("><title>", xml_escaped(look.tip), "</title></", name, ">\n");
}

void Drawing::rect(double x, double y, double width, double height, const ShapeLook& look) {
  add("rect", attribute("x", x) + attribute("y", y) + attribute("width", width) + attribute("height", height), look);
}

void Drawing::polygon(const std::vector<Point>& corners, const ShapeLook& look) {
  add("polygon", points_attribute(corners), look);
}

void Drawing::circle(Point centre, double radius, const ShapeLook& look) {
  add("circle", attribute("cx", centre.x) + attribute("cy", centre.y) + attribute("r", radius), look);
}

void Drawing::line(Point from, Point to, const ShapeLook& look) {
  add("line", attribute("x1", from.x) + attribute("y1", from.y) + attribute("x2", to.x) + attribute("y2", to.y), look);
}

void Drawing::polyline(const std::vector<Point>& points, const ShapeLook& look) {
  add("polyline", points_attribute(points), look);
}

void Drawing::arrow(Point from, Point to, const ShapeLook& look) {
  constexpr double kHead = 7, kHalf = 3.5;
  const double dx = to.x - from.x, dy = to.y - from.y, length = std::hypot(dx, dy);
  require(length > 0, "an arrow of no length");
  const double ux = dx / length, uy = dy / length;
  const Point neck{to.x - kHead * ux, to.y - kHead * uy};
  line(from, neck, look);
  polygon({to, {neck.x - kHalf * uy, neck.y + kHalf * ux}, {neck.x + kHalf * uy, neck.y - kHalf * ux}},
          {.fill = look.stroke});
}

void Drawing::curve(Point from, Point to, const ShapeLook& look) {
  const double middle = (from.y + to.y) / 2;
  add("path",
      text(" d=\"M", point_text(from), " C", point_text({from.x, middle}), " ", point_text({to.x, middle}), " ",
           point_text(to), "\""),
      look);
}

void Drawing::label(Point at, std::string_view words, const LabelLook& look) {
  labels_.push_back(box_around(at, words, look));
  body_ += text("<text", attribute("x", at.x), attribute("y", at.y));
  if (look.size != 12) body_ += attribute("font-size", look.size);
  if (look.anchor != Anchor::start) body_ += text(" text-anchor=\"", anchor_name(look.anchor), "\"");
  if (look.colour != kInk) body_ += text(" fill=\"", look.colour, "\"");
  if (look.bold) body_ += " font-weight=\"bold\"";
  if (look.halo) body_ += " stroke=\"white\" stroke-width=\"4\" paint-order=\"stroke\"";
  if (look.upwards) body_ += text(" transform=\"rotate(-90 ", point_text(at), ")\"");
  body_ += text(">", xml_escaped(words), "</text>\n");
}

std::string Drawing::svg() const {
  const std::string size = svg_number(width_, 0), tall = svg_number(height_, 0);
  return text("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", size, "\" height=\"", tall, "\" viewBox=\"0 0 ",
              size, " ", tall, "\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"", kInk,
              "\">\n<style>text { pointer-events: none }</style>\n<title>", xml_escaped(description_),
              "</title>\n<rect width=\"100%\" height=\"100%\" ", "fill=\"white\"/>\n", body_, "</svg>\n");
}

}  // namespace trireme
