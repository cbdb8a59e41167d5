#pragma once
// Words and numbers for drawings in SVG and HTML.
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// For text and attribute values in XML and HTML: & < > " ' become entities; other control characters than tab and
/// newline, which XML does not allow, become U+FFFD, and so does invalid UTF-8.
std::string xml_escaped(std::string_view text);

/// printf's %.*f without trailing zeros: "12.5", "3". Not finite: "0", as a drawing with a NaN is not shown at all.
std::string svg_number(double value, int digits = 2);

/// A step of 1, 2 or 5 times a power of ten, of which at most `most` fit into `range`.
double tick_step(double range, int most = 6);
/// The multiples of tick_step from `low` to `high`.
std::vector<double> ticks_between(double low, double high, int most = 6);

}  // namespace trireme
