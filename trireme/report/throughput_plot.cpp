// Tokens per second, and the share of the device's peak.
#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/svg.hpp"
#include "trireme/describe/counts.hpp"
#include "trireme/report/plot.hpp"
#include "trireme/report/sections.hpp"

namespace trireme::report {
namespace {

/// What a rank would reach if it never waited for others: the tokens of the step over its own work.
std::vector<double> without_waits(const Columns& m, std::string_view own_work) {
  const std::vector<double>&rate = m["tokens_per_sec"], &seconds = m["train_time_s"], &own = m[own_work];
  std::vector<double> out(m.rows(), std::numeric_limits<double>::quiet_NaN());
  if (rate.empty() || seconds.empty() || own.empty()) return out;
  for (std::size_t i = 0; i < out.size(); ++i)
    if (own[i] > 0) out[i] = rate[i] * seconds[i] / own[i];
  return out;
}

/// The FLOPs that mfu and hfu count, with their formula.
std::string flops_caption(const RunFiles& run, std::size_t index) {
  if (!run.config || run.config->config.model.num_hidden_layers == 0) return "";
  const Config& c = run.config->config;
  try {
    const double model = config::model_flops_per_token(c.model, c.training.seq_len, config::CountedScores::causal);
    const double again = config::recompute_flops_per_token(c.model, c.training.seq_len, config::CountedScores::causal,
                                                           config::recompute_of(c.activation_checkpoint.mode));
    return text(
        " Model FLOPs per token: 6 &times; (weights of the matmuls, without the embedding lookup) + 6 L h s "
        "(causal scores; L layers, h = heads &times; head size, s = ",
        c.training.seq_len, ") = ", figure_html(figure_name(index, "flops_per_token"), model, human_count(model)),
        ". MFU = model FLOPs per token &times; tokens/s per rank &divide; peak of the device (metrics.peak_tflops, or "
        "the data sheet of the GPU). HFU also counts "
        "the FLOPs that are recomputed in backward: ",
        figure_html(figure_name(index, "recomputed_flops_per_token"), again, human_count(again)),
        " per token (activation_checkpoint.mode = ", xml_escaped(c.activation_checkpoint.mode), ").");
  } catch (const Error&) {  // of a model family that this program does not know
    return "";
  }
}

void add_throughput(Plot& plot, const RunFiles& run, std::size_t index, bool several) {
  const Columns& m = run.metrics;
  const std::string prefix = several ? run.name + ": " : "", colour = run_colour(index);
  const std::vector<double> x = steps_of(m);
  if (m.has("own_work_max_s"))
    plot.bands.push_back({prefix + "slowest to fastest rank", colour, x, without_waits(m, "own_work_max_s"),
                          without_waits(m, "own_work_min_s")});
  plot.lines.push_back({prefix + "tokens/s", colour, x, m["tokens_per_sec"], PlotLine::Look::thick});
  for (const auto& [key, name] : {std::pair{"mfu", "MFU"}, std::pair{"hfu", "HFU"}})
    if (m.has(key) && (std::string_view(key) == "mfu" || m.has("hardware_tflops_per_gpu")))
      plot.lines.push_back({prefix + name, several ? colour : key, x, m[key], PlotLine::Look::dashed, true});
  add_layout_marks(plot, run, several);
}

}  // namespace

std::string throughput_html(const Runs& runs) {
  Plot plot{.x = {.title = "step", .unit = PlotAxis::Unit::count},
            .y = {.title = "tokens/s, all ranks", .unit = PlotAxis::Unit::count, .low = 0},
            .right = {.title = "MFU, HFU", .unit = PlotAxis::Unit::percent, .low = 0}};
  std::string captions, missing;
  bool has_peak = false;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].metrics.has("tokens_per_sec")) continue;
    add_throughput(plot, runs[i], i, runs.size() > 1);
    has_peak |= runs[i].metrics.has("mfu");
    if (i == 0) captions = flops_caption(runs[i], i);
  }
  if (plot.lines.empty()) return missing_html("No throughput.", "metrics.jsonl has no record yet.");
  if (!has_peak)
    captions +=
        " There is no MFU because the peak of the device is not known: set metrics.peak_tflops to the dense "
        "peak of one device in the compute dtype.";
  return captioned_html(plot_html(plot),
                        "Line: tokens of a step over its train_time_s. Band: what the slowest and the fastest rank "
                        "would reach if they never waited for others (tokens &divide; own work of the rank)." +
                            captions);
}

}  // namespace trireme::report
