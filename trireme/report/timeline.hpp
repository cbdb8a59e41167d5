#pragma once
// Rows of bars over time: who did what when.
#include <optional>
#include <string>
#include <vector>

#include "trireme/report/trace_file.hpp"

namespace trireme::report {

struct TimelineBar {
  Span span;
  std::string colour;   // as in Plot
  std::string label{};  // shown if there is room
  std::string title{};  // shown by the browser under the mouse
  bool thin = false;    // at the lower edge of the row, over other bars
};

struct TimelineRow {
  std::string label;
  std::vector<TimelineBar> bars{};
  std::optional<Span> idle{};  // hatched where no bar is
};

/// `seconds`: of the whole width.
std::string timeline_html(const std::vector<TimelineRow>& rows, double seconds, int row_height = 26);

/// A legend entry that hides nothing.
std::string key_html(const std::string& colour, const std::string& name);

}  // namespace trireme::report
