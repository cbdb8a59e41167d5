// Where a step goes: the parts of its time on top of each other.
#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/svg.hpp"
#include "trireme/report/plot.hpp"
#include "trireme/report/sections.hpp"

namespace trireme::report {
namespace {

Plot breakdown_plot(const RunFiles& run) {
  const Columns& m = run.metrics;
  Plot plot{.x = {.title = "step", .unit = PlotAxis::Unit::count},
            .y = {.title = "time of a step", .unit = PlotAxis::Unit::seconds, .low = 0}};
  PlotStack stack{.x = steps_of(m), .parts = {}};
  const std::vector<double>& seconds = m["train_time_s"];
  for (const StepPart& part : step_parts()) {
    std::vector<double> y = m[part.key];
    if (y.empty()) continue;
    for (std::size_t i = 0; i < y.size(); ++i) y[i] *= seconds[i];
    stack.parts.push_back({part.name, part.colour, std::move(y)});
  }
  plot.stacks.push_back(std::move(stack));
  plot.lines.push_back({"step time", "text", steps_of(m), seconds, PlotLine::Look::dashed});
  add_layout_marks(plot, run, /*several=*/false);
  return plot;
}

std::string shares_table(const RunFacts& facts, std::size_t index) {
  HtmlTable table{.header = {"part", "share"}, .rows = {}, .right = {false, true}};
  double sum = 0;
  for (const auto& [part, share] : facts.shares) {
    sum += share;
    table.rows.push_back({text("<i class=\"chip\" style=\"--c:var(--c-", part->colour, ")\"></i>", part->name),
                          figure_html(figure_name(index, text("share.", part->key)), share, percent_text(share))});
  }
  table.rows.push_back({"<b>sum</b>", figure_html(figure_name(index, "share.sum"), sum, percent_text(sum))});
  return table_html(table);
}

}  // namespace

std::string breakdown_html(const Runs& runs) {
  std::string out;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Columns& m = runs[i].metrics;
    out += run_heading(runs, runs[i]);
    if (!m.has("train_time_s") || !m.has("forward_time_frac")) {
      out += missing_html("The parts of a step were not measured.",
                          "They are measured by the host's clock, so only on CPUs; on a GPU, look at a trace "
                          "(profiler.steps).");
      continue;
    }
    out += captioned_html(
        text("<div class=\"beside\"><div>", plot_html(breakdown_plot(runs[i])), "</div><div>",
             shares_table(facts_of(runs[i]), i), "</div></div>"),
        text("Means over the ranks. Exposed communication: a rank waits for a collective, or for the "
             "others at the end of the step. Bubble: it waits for its input from another pipeline stage, "
             "or has no action left while others have. The table is of all steps but the first, which "
             "includes set-up.",
             runs[i].segments.size() > 1 ? " It is of the last layout." : ""));
  }
  return out;
}

}  // namespace trireme::report
