// The loss over the steps: raw and smoothed, on held-out tokens, with the learning rate, spikes and checkpoints.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/svg.hpp"
#include "trireme/report/plot.hpp"
#include "trireme/report/sections.hpp"

namespace trireme::report {
namespace {

constexpr double kSpikeZ = 4;

/// Steps over which the mean is taken: a fiftieth of the run.
double smoothing_steps(std::size_t rows) { return std::max(5.0, static_cast<double>(rows) / 50); }

/// An exponential mean with a correction for its begin, so that the first value is the first loss.
std::vector<double> smoothed(const std::vector<double>& values, double steps) {
  const double keep = 1 - 2 / (steps + 1);
  std::vector<double> out;
  double sum = 0, weight = 0;
  for (const double value : values) {
    if (std::isfinite(value)) {
      sum = keep * sum + (1 - keep) * value;
      weight = keep * weight + (1 - keep);
    }
    out.push_back(weight > 0 ? sum / weight : std::numeric_limits<double>::quiet_NaN());
  }
  return out;
}

/// The steps after which a checkpoint was saved.
std::set<std::int64_t> checkpoint_steps(const RunFiles& run) {
  std::set<std::int64_t> steps;
  for (const Event& event : run.events) {
    if (event.name == "checkpoint")
      if (const auto step = event.whole("step")) steps.insert(*step);
    const std::string folder = event.word("folder");
    if (event.name == "saved" && folder.starts_with("step-") && folder.size() < 20)
      steps.insert(std::atoll(folder.c_str() + 5));
  }
  return steps;
}

void add_loss(Plot& plot, const RunFiles& run, std::size_t index, bool several, double smoothing, std::size_t& spikes) {
  const Columns& m = run.metrics;
  const std::string prefix = several ? run.name + ": " : "", colour = run_colour(index);
  const std::vector<double> x = steps_of(m), &loss = m["loss"];
  plot.lines.push_back({prefix + "loss", colour, x, loss, PlotLine::Look::thin});
  plot.lines.push_back({prefix + "smoothed", colour, x, smoothed(loss, smoothing), PlotLine::Look::thick});
  if (m.has("val/loss"))
    plot.lines.push_back(
        {prefix + "validation", several ? colour : "validation", x, m["val/loss"], PlotLine::Look::dots});
  if (m.has("lr") && (!several || index == 0))
    plot.lines.push_back({prefix + "learning rate", "lr", x, m["lr"], PlotLine::Look::dashed, /*right_axis=*/true});
  const std::vector<double>& z = m["loss_z"];
  for (std::size_t i = 0; i < z.size(); ++i)
    if (std::abs(z[i]) > kSpikeZ && std::isfinite(loss[i])) {
      ++spikes;
      plot.marks.push_back({PlotMark::Kind::ring, x[i], loss[i],
                            text("step ", m.steps[i], ": loss ", human_number(loss[i]), ", z = ", svg_number(z[i]))});
    }
  for (const std::int64_t step : checkpoint_steps(run))
    plot.marks.push_back({PlotMark::Kind::tick, static_cast<double>(step), 0, text("checkpoint after step ", step)});
  add_layout_marks(plot, run, several);
}

}  // namespace

std::string loss_html(const Runs& runs) {
  std::size_t spikes = 0, rows = 0;
  for (const RunFiles& run : runs) rows = std::max(rows, run.metrics.rows());
  const double smoothing = smoothing_steps(rows);
  Plot plot{.x = {.title = "step", .unit = PlotAxis::Unit::count},
            .y = {.title = "loss (nats per token)"},
            .right = {.title = "learning rate", .unit = PlotAxis::Unit::scientific, .low = 0},
            .marks_name = "spike",
            .ticks_name = "checkpoint",
            .height = 320};
  std::string missing;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].metrics.has("loss"))
      missing += missing_html(text("No loss of ", runs[i].name, "."),
                              "metrics.jsonl has no record yet: the first step is recorded when it ends.");
    else
      add_loss(plot, runs[i], i, runs.size() > 1, smoothing, spikes);
  }
  if (plot.lines.empty()) return missing;
  return missing + captioned_html(
                       plot_html(plot),
                       text("Thin: the loss of each step, a mean over its tokens. Thick: its exponential mean over ",
                            figure_html("smoothing_steps", smoothing, human_number(smoothing)),
                            " steps. Dots: held-out tokens. Rings: |z| &gt; ", kSpikeZ, " against the last 128 steps (",
                            figure_html("spikes", static_cast<double>(spikes), text(spikes)),
                            "). Ticks at the bottom: checkpoints."));
}

}  // namespace trireme::report
