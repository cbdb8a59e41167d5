// The memory of each rank through a traced step, with the prediction.
#include <algorithm>
#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/planner/memory.hpp"
#include "trireme/report/plot.hpp"
#include "trireme/report/sections.hpp"

namespace trireme::report {
namespace {

constexpr std::size_t kMostLanes = 16;

struct Purpose {
  const char* name;
  double TracedMemory::* bytes;
};
constexpr Purpose kPurposes[] = {{"weights", &TracedMemory::weights},
                                 {"gradients", &TracedMemory::gradients},
                                 {"states", &TracedMemory::states},
                                 {"other", &TracedMemory::other},
                                 {"activations", &TracedMemory::activations}};

std::vector<double> column_of(const std::vector<TracedMemory>& samples, double TracedMemory::* bytes) {
  std::vector<double> out;
  for (const TracedMemory& sample : samples) out.push_back(sample.*bytes);
  return out;
}

/// The peak of a rank in a step, which the samples between units do not see.
std::optional<double> peak_in_step(const RunFiles& run, std::int64_t step, int rank) {
  for (const RankRow& row : run.ranks)
    if (row.step == step && static_cast<std::size_t>(rank) < row.peak_bytes.size())
      return row.peak_bytes[static_cast<std::size_t>(rank)];
  return std::nullopt;
}

std::string lane_html(const RunFiles& run, const TracedStep& traced, const RankTrace& rank, double top, double seconds,
                      std::optional<double> predicted, std::size_t index, bool legend) {
  const std::vector<TracedMemory>& samples = rank.memory;
  const std::vector<double> x = column_of(samples, &TracedMemory::time);
  Plot plot{.x = {.title = "", .unit = PlotAxis::Unit::seconds, .low = 0, .high = seconds},
            .y = {.title = text("rank ", rank.rank), .unit = PlotAxis::Unit::bytes, .low = 0, .high = top},
            .height = 110,
            .legend = legend};
  if (samples.front().by_purpose) {
    PlotStack stack{.x = x, .parts = {}};
    for (const Purpose& purpose : kPurposes)
      stack.parts.push_back({purpose.name, text("memory-", purpose.name), column_of(samples, purpose.bytes)});
    plot.stacks.push_back(std::move(stack));
  } else {
    plot.lines.push_back({"allocated", "memory-activations", x, column_of(samples, &TracedMemory::allocated)});
  }
  if (predicted)
    plot.lines.push_back({"predicted", "predicted", {0, seconds}, {*predicted, *predicted}, PlotLine::Look::dashed});
  const std::optional<double> peak = peak_in_step(run, traced.step, rank.rank);
  if (peak && *peak > 0) {
    plot.lines.push_back({"peak of the step", "text", {0, seconds}, {*peak, *peak}, PlotLine::Look::thin});
    plot.note_html =
        "peak " + figure_html(figure_name(index, text("memory.peak.rank", rank.rank)), *peak, human_bytes(*peak));
  }
  return text("<div class=\"memlane\">", plot_html(plot), "</div>");
}

}  // namespace

std::string memory_html(const Runs& runs) {
  std::string out;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunFiles& run = runs[i];
    out += run_heading(runs, run);
    const TracedStep* traced = drawn_step(run);
    const bool sampled = traced != nullptr &&
                         std::ranges::any_of(traced->ranks, [](const RankTrace& rank) { return !rank.memory.empty(); });
    const RunFacts facts = facts_of(run);
    std::string both;
    if (facts.peak_gib)
      both = text(
          "Highest peak of all ranks: ",
          figure_html(figure_name(i, "memory.peak"), *facts.peak_gib * 0x1p30, human_bytes(*facts.peak_gib * 0x1p30)),
          facts.predicted_bytes ? text("; predicted before the start, of the rank with the most: ",
                                       figure_html(figure_name(i, "memory.predicted"), *facts.predicted_bytes,
                                                   human_bytes(*facts.predicted_bytes)))
                                : "",
          ". ");
    if (!sampled) {
      out += no_trace_html(run, "The memory through a step") + text("<p>", both, "</p>");
      continue;
    }
    const Segment* segment = run.segment_of(traced->step);
    const std::optional<double> predicted = segment != nullptr ? segment->predicted_bytes : facts.predicted_bytes;
    out += earlier_layout_html(run, traced->step);
    double top = predicted.value_or(0), seconds = 0;
    for (const RankTrace& rank : traced->ranks) {
      seconds = std::max(seconds, rank.step.end);
      for (const TracedMemory& sample : rank.memory) top = std::max(top, sample.allocated);
      top = std::max(top, peak_in_step(run, traced->step, rank.rank).value_or(0));
    }
    std::string lanes;
    for (std::size_t lane = 0; lane < std::min(kMostLanes, traced->ranks.size()); ++lane)
      if (!traced->ranks[lane].memory.empty())
        lanes += lane_html(run, *traced, traced->ranks[lane], 1.08 * top, seconds, predicted, i, lane == 0);
    if (traced->ranks.size() > kMostLanes) lanes += text("<p>The first ", kMostLanes, " ranks.</p>");
    out += captioned_html(lanes, text(both, "Step ", traced->step,
                                      ", sampled where forward and backward enter and leave a layer; the thin line is "
                                      "the peak of the rank in that step, also between samples."));
  }
  return out;
}

}  // namespace trireme::report
