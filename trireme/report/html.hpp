#pragma once
// Pieces of HTML. All take plain text and escape it, unless a parameter is called html.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::report {

/// A number of the page: what is shown, and the value itself in an attribute, so that it can be checked and copied.
/// `name`: unique for a run, "loss.last".
std::string figure_html(std::string_view name, double value, std::string_view shown);

/// "12.3 %"
std::string percent_text(double fraction, int digits = 1);

/// A box of the summary: a label above a number.
std::string tile_html(std::string_view label, const std::string& html, std::string_view remark = "");

/// A table that can be scrolled sideways. Cells are html. `right`: columns whose cells are numbers.
struct HtmlTable {
  std::vector<std::string> header{};
  std::vector<std::vector<std::string>> rows{};
  std::vector<bool> right{};
  std::string css{};  // class
};
std::string table_html(const HtmlTable& table);

/// What is missing, and how to get it.
std::string missing_html(std::string_view what, std::string_view how);

/// A numbered section with an anchor.
struct Section {
  std::string id, title;
  std::string html;
};

/// The CSS class of a label below an axis, at this part of its length: at the end it must not leave the page.
std::string_view x_tick_class(double at);

/// A figure with its caption. `html`: the drawing.
std::string captioned_html(const std::string& html, const std::string& caption_html);

}  // namespace trireme::report
