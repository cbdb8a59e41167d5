#include "trireme/report/plot.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/json_text.hpp"
#include "trireme/base/svg.hpp"
#include "trireme/metrics/log_item.hpp"
#include "trireme/metrics/metrics_file.hpp"
#include "trireme/report/html.hpp"

namespace trireme::report {
namespace {

constexpr double kUnits = 1000;  // width and height of a drawing in its own units

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();

  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void add(const std::vector<double>& values) {
    for (const double value : values) add(value);
  }
  bool is_empty() const { return !(low <= high); }
  double at(double value) const { return high > low ? (value - low) / (high - low) : 0.5; }
};

/// Of an axis: as wide as the data and a little more, or as it was asked for.
Range fitted(Range range, const PlotAxis& axis, bool margin) {
  if (range.is_empty()) range = {0, 1};
  const double more = margin ? 0.05 * (range.high > range.low ? range.high - range.low : std::abs(range.high)) : 0;
  range.low -= more;
  range.high += more;
  if (axis.low) range.low = *axis.low;
  if (axis.high) range.high = *axis.high;
  if (!(range.high > range.low)) range.high = range.low + 1;
  return range;
}

struct Ranges {
  Range x, left, right;
  bool has_right = false;
};

Ranges ranges_of(const Plot& plot) {
  Ranges r;
  for (const PlotLine& line : plot.lines) {
    r.x.add(line.x);
    (line.right_axis ? r.right : r.left).add(line.y);
    r.has_right |= line.right_axis;
  }
  for (const PlotBand& band : plot.bands) {
    r.x.add(band.x);
    r.left.add(band.low);
    r.left.add(band.high);
  }
  for (const PlotStack& stack : plot.stacks) {
    r.x.add(stack.x);
    for (std::size_t i = 0; i < stack.x.size(); ++i) {
      double sum = 0;
      for (const PlotStack::Part& part : stack.parts)
        if (std::isfinite(part.y[i])) sum += part.y[i];
      r.left.add(sum);
    }
  }
  r.x = fitted(r.x, plot.x, false);
  r.left = fitted(r.left, plot.y, true);
  r.right = fitted(r.right, plot.right, true);
  return r;
}

/// Round numbers of bytes are those of a binary unit.
std::vector<double> ticks_of(const Range& range, PlotAxis::Unit unit, int most) {
  double size = 1;
  if (unit == PlotAxis::Unit::bytes)
    while (range.high - range.low >= 1024 * size) size *= 1024;
  std::vector<double> ticks = ticks_between(range.low / size, range.high / size, most);
  for (double& tick : ticks) tick *= size;
  return ticks;
}

std::string x_text(double x) { return svg_number(kUnits * x, 1); }
std::string y_text(double y) { return svg_number(kUnits * (1 - y), 1); }

/// A new subpath after each gap.
std::string path_of(const std::vector<double>& x, const std::vector<double>& y, const Range& xs, const Range& ys) {
  std::string path;
  bool pen_is_down = false;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(y[i])) {
      pen_is_down = false;
      continue;
    }
    path += text(pen_is_down ? "L" : "M", x_text(xs.at(x[i])), " ", y_text(ys.at(y[i])));
    pen_is_down = true;
  }
  return path;
}

/// A point is a line of no length with round ends: it stays round when the drawing is stretched.
std::string dots_path(const std::vector<double>& x, const std::vector<double>& y, const Range& xs, const Range& ys) {
  std::string path;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (std::isfinite(y[i])) path += text("M", x_text(xs.at(x[i])), " ", y_text(ys.at(y[i])), "h.01");
  return path;
}

std::string area_path(const std::vector<double>& x, const std::vector<double>& low, const std::vector<double>& high,
                      const Range& xs, const Range& ys) {
  std::string there, back;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(low[i]) || !std::isfinite(high[i])) continue;
    there += text(there.empty() ? "M" : "L", x_text(xs.at(x[i])), " ", y_text(ys.at(high[i])));
    back = text("L", x_text(xs.at(x[i])), " ", y_text(ys.at(low[i])), back);
  }
  return there.empty() ? "" : there + back + "Z";
}

const char* look_class(PlotLine::Look look) {
  switch (look) {
    case PlotLine::Look::thin: return "thin";
    case PlotLine::Look::thick: return "thick";
    case PlotLine::Look::dots: return "dots";
    case PlotLine::Look::dashed: break;
  }
  return "dashed";
}

std::string stroke(const std::string& colour) { return text("style=\"stroke:var(--c-", colour, ")\""); }
std::string fill(const std::string& colour) { return text("style=\"fill:var(--c-", colour, ")\""); }

/// One list of points for the script of the page.
std::string series_json(const std::string& name, const std::string& key, const std::string& colour, PlotAxis::Unit unit,
                        const std::vector<double>& x, const std::vector<double>& y) {
  const auto list = [](const std::vector<double>& values) {
    std::string out;
    for (const double value : values) out.append(out.empty() ? "" : ",").append(metrics::json_number_or_null(value));
    return out;
  };
  return text("{\"name\":", json_string(name), ",\"key\":", json_string(key), ",\"colour\":", json_string(colour),
              ",\"unit\":", static_cast<int>(unit), ",\"x\":[", list(x), "],\"y\":[", list(y), "]}");
}

/// JSON inside a script element: "<" could end it.
std::string in_script(std::string json) {
  for (std::size_t at = 0; (at = json.find('<', at)) != std::string::npos;) json.replace(at, 1, "\\u003c");
  return json;
}

class Drawing {
 public:
  explicit Drawing(const Plot& plot) : plot_(plot), ranges_(ranges_of(plot)) {}

  std::string html() {
    grid();
    for (const PlotStack& stack : plot_.stacks) add(stack);
    for (const PlotBand& band : plot_.bands) add(band);
    for (const PlotLine& line : plot_.lines) add(line);
    for (const PlotMark& mark : plot_.marks) add(mark);
    return text(
        "<div class=\"plot\">", legend(), "<div class=\"chart", ranges_.has_right ? " two" : "",
        "\"><span class=\"ytitle\">", xml_escaped(plot_.y.title), "</span>",
        ranges_.has_right ? text("<span class=\"ytitle right\">", xml_escaped(plot_.right.title), "</span>") : "",
        plot_.note_html.empty() ? "" : text("<span class=\"ytitle right\">", plot_.note_html, "</span>"),
        "<div class=\"area\" style=\"height:", plot_.height,
        "px\"><svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"",
        xml_escaped(plot_.y.title), "\">", svg_, "</svg>", labels_, "</div><div class=\"xtitle\">",
        xml_escaped(plot_.x.title), "</div></div><script type=\"application/json\">",
        in_script(text("{\"x0\":", metrics::json_number_or_null(ranges_.x.low), ",\"x1\":",
                       metrics::json_number_or_null(ranges_.x.high), ",\"xunit\":", static_cast<int>(plot_.x.unit),
                       ",\"xname\":", json_string(plot_.x.title), ",\"series\":[", series_, "]}")),
        "</script></div>\n");
  }

 private:
  void grid() {
    const auto label = [&](std::string_view css, const char* side, double at, const std::string& words) {
      labels_ += text("<span class=\"", css, "\" style=\"", side, ":", svg_number(100 * at), "%\">", xml_escaped(words),
                      "</span>");
    };
    for (const double y : ticks_of(ranges_.left, plot_.y.unit, 5)) {
      const std::string at = y_text(ranges_.left.at(y));
      svg_ += text("<path class=\"grid\" d=\"M0 ", at, "H1000\"/>");
      label("tick y", "top", 1 - ranges_.left.at(y), axis_text(y, plot_.y.unit));
    }
    if (ranges_.has_right)
      for (const double y : ticks_of(ranges_.right, plot_.right.unit, 5))
        label("tick y right", "top", 1 - ranges_.right.at(y), axis_text(y, plot_.right.unit));
    for (const double x : ticks_of(ranges_.x, plot_.x.unit, 6)) {
      svg_ += text("<path class=\"grid\" d=\"M", x_text(ranges_.x.at(x)), " 0V1000\"/>");
      label(x_tick_class(ranges_.x.at(x)), "left", ranges_.x.at(x), axis_text(x, plot_.x.unit));
    }
  }

  /// The class by which the legend hides it.
  std::string css_of(const std::string& key) {
    const auto [found, is_new] = numbers_.try_emplace(key, numbers_.size());
    return text("s", found->second);
  }

  void remember(const std::string& name, const std::string& key, const std::string& colour, PlotAxis::Unit unit,
                std::vector<double> x, std::vector<double> y) {
    series_ += (series_.empty() ? "" : ",") + series_json(name, css_of(key), colour, unit, x, y);
  }

  void add(const PlotLine& line) {
    PlotLine drawn = line;
    thin_out(drawn.x, drawn.y);
    const Range& ys = line.right_axis ? ranges_.right : ranges_.left;
    const std::string key = line.key.empty() ? line.name : line.key;
    const bool dots = line.look == PlotLine::Look::dots;
    svg_ += text("<path class=\"line ", look_class(line.look), " ", css_of(key), "\" ", stroke(line.colour), " d=\"",
                 (dots ? dots_path : path_of)(drawn.x, drawn.y, ranges_.x, ys), "\"/>");
    add_entry(key, key, line.colour, look_class(line.look));
    remember(line.name, key, line.colour, line.right_axis ? plot_.right.unit : plot_.y.unit, drawn.x, drawn.y);
  }

  void add(const PlotBand& band) {
    std::vector<double> x = band.x, x_too = band.x, low = band.low, high = band.high;
    if (x.size() > kMostOfAreas) {
      average(x, low);
      average(x_too, high);
    }
    svg_ += text("<path class=\"band ", css_of(band.name), "\" ", fill(band.colour), " d=\"",
                 area_path(x, low, high, ranges_.x, ranges_.left), "\"/>");
    add_entry(band.name, band.name, band.colour, "band");
    remember(band.name + ", lower end", band.name, band.colour, plot_.y.unit, x, low);
    remember(band.name + ", upper end", band.name, band.colour, plot_.y.unit, x, high);
  }

  void add(const PlotStack& stack) {
    std::vector<double> x, below;
    for (const PlotStack::Part& part : stack.parts) {
      std::vector<double> y = part.y;
      x = stack.x;
      if (x.size() > kMostOfAreas) average(x, y);
      below.resize(x.size());
      std::vector<double> above = below;
      for (std::size_t i = 0; i < x.size(); ++i)
        if (std::isfinite(y[i])) above[i] += y[i];
      svg_ += text("<path class=\"stack ", css_of(part.name), "\" ", fill(part.colour), " d=\"",
                   area_path(x, below, above, ranges_.x, ranges_.left), "\"/>");
      add_entry(part.name, part.name, part.colour, "stack");
      remember(part.name, part.name, part.colour, plot_.y.unit, x, y);
      below = std::move(above);
    }
  }

  void add(const PlotMark& mark) {
    const std::string x = x_text(ranges_.x.at(mark.x));
    if (mark.kind == PlotMark::Kind::tick) {
      svg_ += text("<path class=\"checkpoint ", css_of(plot_.ticks_name), "\" d=\"M", x, " 1000V945\"><title>",
                   xml_escaped(mark.title), "</title></path>");
      add_entry(plot_.ticks_name, plot_.ticks_name, "mark", "tickmark");
    } else if (mark.kind == PlotMark::Kind::line) {
      svg_ += text("<path class=\"layout ", css_of(plot_.lines_name), "\" d=\"M", x, " 0V1000\"><title>",
                   xml_escaped(mark.title), "</title></path>");
      add_entry(plot_.lines_name, plot_.lines_name, "mark", "dashed");
    } else {
      svg_ += text("<path class=\"spike ", css_of(plot_.marks_name), "\" d=\"M", x, " ",
                   y_text(ranges_.left.at(mark.y)), "h.01\"><title>", xml_escaped(mark.title), "</title></path>");
      add_entry(plot_.marks_name, plot_.marks_name, "spike", "dots");
    }
  }

  void add_entry(const std::string& key, const std::string& name, const std::string& colour, const char* look) {
    if (!entered_.try_emplace(key, true).second) return;
    legend_ +=
        text("<button type=\"button\" class=\"entry ", look, "\" data-hides=\"", css_of(key),
             "\" aria-pressed=\"true\"><i style=\"--c:var(--c-", colour, ")\"></i>", xml_escaped(name), "</button>");
  }

  std::string legend() const {
    return plot_.legend && !legend_.empty() ? text("<div class=\"legend\">", legend_, "</div>") : "";
  }

  static constexpr std::size_t kMostOfAreas = 800;
  /// Means of buckets.
  static void average(std::vector<double>& x, std::vector<double>& y) {
    const std::size_t size = (x.size() + kMostOfAreas - 1) / kMostOfAreas;
    std::vector<double> xs, ys;
    for (std::size_t i = 0; i < x.size(); i += size) {
      double sum = 0, count = 0;
      for (std::size_t k = i; k < std::min(i + size, x.size()); ++k)
        if (std::isfinite(y[k])) sum += y[k], ++count;
      xs.push_back(x[i]);
      ys.push_back(count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN());
    }
    x = std::move(xs);
    y = std::move(ys);
  }

  const Plot& plot_;
  const Ranges ranges_;
  std::string svg_, labels_, legend_, series_;
  std::map<std::string, std::size_t> numbers_;
  std::map<std::string, bool> entered_;
};

}  // namespace

std::string plot_html(const Plot& plot) { return Drawing(plot).html(); }

std::string axis_text(double value, PlotAxis::Unit unit) {
  switch (unit) {
    case PlotAxis::Unit::number: return human_number(std::abs(value) < 1e-12 ? 0 : value);
    case PlotAxis::Unit::count: return value == 0 ? "0" : human_count(value);
    case PlotAxis::Unit::seconds: return value == 0 ? "0" : human_seconds(value);
    case PlotAxis::Unit::bytes: return value == 0 ? "0" : human_bytes(value);
    case PlotAxis::Unit::percent: return svg_number(100 * value, 1) + " %";
    case PlotAxis::Unit::scientific: break;
  }
  return value == 0 ? "0" : metrics::format_scalar({"", value, ".2g"});
}

void thin_out(std::vector<double>& x, std::vector<double>& y, std::size_t most) {
  if (x.size() <= most) return;
  const std::size_t size = (2 * x.size() + most - 1) / most;
  std::vector<double> xs, ys;
  for (std::size_t i = 0; i < x.size(); i += size) {
    std::size_t low = i, high = i;
    for (std::size_t k = i; k < std::min(i + size, x.size()); ++k) {
      if (!std::isfinite(y[k])) continue;
      if (!std::isfinite(y[low]) || y[k] < y[low]) low = k;
      if (!std::isfinite(y[high]) || y[k] > y[high]) high = k;
    }
    for (const std::size_t k : {std::min(low, high), std::max(low, high)}) {
      xs.push_back(x[k]);
      ys.push_back(y[k]);
      if (low == high) break;
    }
  }
  x = std::move(xs);
  y = std::move(ys);
}

}  // namespace trireme::report
