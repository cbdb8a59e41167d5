#include "trireme/report/timeline.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/svg.hpp"
#include "trireme/report/html.hpp"

namespace trireme::report {
namespace {

constexpr double kLeastLabel = 0.022;  // of the width

std::string bars_svg(const TimelineRow& row, double seconds) {
  std::string svg, labels;
  for (const TimelineBar& bar : row.bars) {
    const double begin = std::clamp(bar.span.begin / seconds, 0.0, 1.0),
                 end = std::clamp(bar.span.end / seconds, 0.0, 1.0);
    svg += text(bar.thin ? "<rect class=\"thin\" x=\"" : "<rect x=\"", svg_number(1000 * begin), "\" y=\"",
                bar.thin ? 78 : 6, "\" width=\"", svg_number(1000 * (end - begin), 3), "\" height=\"",
                bar.thin ? 22 : 88, "\" style=\"fill:var(--c-", bar.colour, ")\">");
    if (!bar.title.empty()) svg += text("<title>", xml_escaped(bar.title), "</title>");
    svg += "</rect>";
    if (!bar.label.empty() && end - begin >= kLeastLabel)
      labels += text("<span class=\"barlabel\" style=\"left:", svg_number(100 * begin),
                     "%;width:", svg_number(100 * (end - begin)), "%\">", xml_escaped(bar.label), "</span>");
  }
  return text("<svg viewBox=\"0 0 1000 100\" preserveAspectRatio=\"none\">", svg, "</svg>", labels);
}

}  // namespace

std::string timeline_html(const std::vector<TimelineRow>& rows, double seconds, int row_height) {
  if (!(seconds > 0)) return "";
  std::string out = "<div class=\"timeline\">";
  for (const TimelineRow& row : rows) {
    std::string idle;
    if (row.idle)
      idle = text("<div class=\"idle\" style=\"left:", svg_number(100 * row.idle->begin / seconds),
                  "%;width:", svg_number(100 * row.idle->length() / seconds), "%\"></div>");
    out += text("<div class=\"row\"><span class=\"rowlabel\">", xml_escaped(row.label),
                "</span><div class=\"lane\" style=\"height:", row_height, "px\">", idle, bars_svg(row, seconds),
                "</div></div>");
  }
  std::string labels;
  for (const double tick : ticks_between(0, seconds, 6))
    labels += text("<span class=\"", x_tick_class(tick / seconds), "\" style=\"left:", svg_number(100 * tick / seconds),
                   "%\">", tick == 0 ? "0" : human_seconds(tick), "</span>");
  return out + text("<div class=\"row axis\"><span class=\"rowlabel\"></span><div class=\"lane\">", labels,
                    "</div></div></div>\n");
}

std::string key_html(const std::string& colour, const std::string& name) {
  return text("<span class=\"entry stack\"><i style=\"--c:var(--c-", xml_escaped(colour), ")\"></i>", xml_escaped(name),
              "</span>");
}

}  // namespace trireme::report
