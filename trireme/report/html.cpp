#include "trireme/report/html.hpp"

#include "trireme/base/error.hpp"
#include "trireme/base/svg.hpp"
#include "trireme/metrics/metrics_file.hpp"

namespace trireme::report {

std::string figure_html(std::string_view name, double value, std::string_view shown) {
  return text("<span class=\"num\" data-figure=\"", xml_escaped(name), "\" data-value=\"",
              metrics::json_number_or_null(value), "\">", xml_escaped(shown), "</span>");
}

std::string percent_text(double fraction, int digits) {
  return svg_number(100 * fraction, digits) + "\u00a0%";  // the two stay on one line
}

std::string tile_html(std::string_view label, const std::string& html, std::string_view remark) {
  return text("<div class=\"tile\"><div class=\"label\">", xml_escaped(label), "</div><div class=\"value\">", html,
              "</div><div class=\"remark\">", xml_escaped(remark), "</div></div>\n");
}

std::string table_html(const HtmlTable& table) {
  const auto css = [&](std::size_t column) {
    return column < table.right.size() && table.right[column] ? " class=\"r\"" : "";
  };
  std::string out =
      text("<div class=\"scroll\"><table", table.css.empty() ? "" : text(" class=\"", table.css, "\""), "><thead><tr>");
  for (std::size_t i = 0; i < table.header.size(); ++i) out += text("<th", css(i), ">", table.header[i], "</th>");
  out += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) out += text("<td", css(i), ">", row[i], "</td>");
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string missing_html(std::string_view what, std::string_view how) {
  return text("<p class=\"missing\"><b>", xml_escaped(what), "</b> ", xml_escaped(how), "</p>\n");
}

std::string captioned_html(const std::string& html, const std::string& caption_html) {
  return text("<figure>", html, "<figcaption>", caption_html, "</figcaption></figure>\n");
}

std::string_view x_tick_class(double at) { return at > 0.93 ? "tick x end" : "tick x"; }

}  // namespace trireme::report
