// What libtorch's own profiler recorded: operations of the host and kernels of the GPU, by time.
#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/svg.hpp"
#include "trireme/report/sections.hpp"

namespace trireme::report {
namespace {

constexpr std::size_t kMostOperations = 15;

/// Names of kernels with all their template arguments can be thousands of characters.
std::string shortened_name(const std::string& name) {
  constexpr std::size_t kLongest = 90;
  if (name.size() <= kLongest) return xml_escaped(name);
  return text("<span title=\"", xml_escaped(name.substr(0, 2000)), "\">", xml_escaped(name.substr(0, kLongest)),
              "…</span>");
}

std::string times_table(const std::vector<OperationTime>& times, double seconds, const std::string& what,
                        const std::string& figure) {
  HtmlTable table{.header = {what, "calls", "time", "of the time"}, .rows = {}, .right = {false, true, true, true}};
  for (std::size_t i = 0; i < std::min(times.size(), kMostOperations); ++i) {
    const double share = seconds > 0 ? times[i].seconds / seconds : 0;
    table.rows.push_back({shortened_name(times[i].name), thousands(times[i].count),
                          figure_html(text(figure, ".", i), times[i].seconds, human_seconds(times[i].seconds)),
                          percent_text(share)});
  }
  return table_html(table);
}

std::string operations_of(const RunFiles& run, std::size_t index) {
  const OperationTrace& trace = *run.operations;
  const auto figure = [&](const char* name) { return figure_name(index, text("operations.", name)); };
  std::string caption =
      text("Rank ", trace.rank, ", ", figure_html(figure("wall"), trace.seconds, human_seconds(trace.seconds)),
           " up to step ", trace.last_step, run.is_of_last_layout(trace.last_step) ? "" : " on an earlier layout",
           ", by libtorch's profiler. The time of an operation is without those that it called");
  std::string tables;
  if (!trace.kernels.empty()) {
    const double busy = trace.seconds > 0 ? trace.gpu_busy_seconds / trace.seconds : 0;
    caption += text("; the GPU was busy in ", figure_html(figure("gpu_busy"), busy, percent_text(busy)), " of it");
    tables += times_table(trace.kernels, trace.seconds, "kernel", figure("kernel"));
  }
  tables += times_table(trace.host, trace.seconds, "operation of the host", figure("host"));
  return captioned_html(tables, caption + ".");
}

}  // namespace

std::string operations_html(const Runs& runs) {
  std::string out;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    out += run_heading(runs, runs[i]);
    out += runs[i].operations ? operations_of(runs[i], i)
                              : missing_html("No trace of libtorch's operations.",
                                             "--profiler.operations true records some steps of the next run.");
  }
  return out;
}

}  // namespace trireme::report
