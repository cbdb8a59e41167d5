#include "trireme/report/run_facts.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/files/folder_lock.hpp"
#include "trireme/metrics/run_summary.hpp"
#include "trireme/report/run_segments.hpp"

namespace trireme::report {
namespace {

std::optional<double> first_of(const std::vector<double>& values) {
  const auto found = std::ranges::find_if(values, [](double v) { return std::isfinite(v); });
  return found == values.end() ? std::nullopt : std::optional(*found);
}

std::optional<double> last_of(const std::vector<double>& values) {
  const auto found = std::find_if(values.rbegin(), values.rend(), [](double v) { return std::isfinite(v); });
  return found == values.rend() ? std::nullopt : std::optional(*found);
}

/// By hand: g++ 13 warns of a copy of part of a vector.
std::vector<double> of_rows(const std::vector<double>& values, const std::vector<std::size_t>& rows) {
  std::vector<double> out;
  for (const std::size_t row : rows)
    if (row < values.size()) out.push_back(values[row]);
  return out;
}

void add_shares(RunFacts& facts, const Columns& metrics, const std::vector<std::size_t>& rows) {
  const std::vector<double> seconds = of_rows(metrics["train_time_s"], rows);
  for (const StepPart& part : step_parts()) {
    if (!metrics.has(part.key)) continue;
    const std::vector<double> shares = of_rows(metrics[part.key], rows);
    double of = 0, all = 0;
    for (std::size_t i = 0; i < std::min(seconds.size(), shares.size()); ++i)
      if (std::isfinite(shares[i]) && std::isfinite(seconds[i])) {
        of += shares[i] * seconds[i];
        all += seconds[i];
      }
    if (all > 0) facts.shares.emplace_back(&part, of / all);
  }
}

void add_slowest(RunFacts& facts, const RunFiles& run) {
  std::vector<double> sums;
  for (const RankRow& row : run.ranks) {
    if (row.own_work_s.size() < 2 || row.step == run.ranks.front().step || !run.is_of_last_layout(row.step)) continue;
    if (!run.segments.empty() && run.segments.back().is_start(row.step)) continue;
    sums.resize(std::max(sums.size(), row.own_work_s.size()));
    for (std::size_t rank = 0; rank < row.own_work_s.size(); ++rank)
      if (std::isfinite(row.own_work_s[rank])) sums[rank] += row.own_work_s[rank];
  }
  if (sums.empty()) return;
  const metrics::SlowestRank slowest = metrics::slowest_rank(sums);
  facts.slowest_rank = slowest.rank;
  facts.slowest_excess = slowest.excess;
}

std::string exit_words(int code) {
  switch (code) {
    case 0: return "finished";
    case 75: return "stopped by its scheduler, saved (exit code 75)";
    case 130: return "stopped by Ctrl-C, saved (exit code 130)";
    default: return text("failed (exit code ", code, ")");
  }
}

}  // namespace

const std::vector<StepPart>& step_parts() {
  static const std::vector<StepPart> kParts = {{"forward_time_frac", "forward", "forward"},
                                               {"backward_time_frac", "backward", "backward"},
                                               {"comm_exposed_frac", "communication exposed", "exposed"},
                                               {"bubble_time_frac", "bubble", "bubble"},
                                               {"optimizer_time_frac", "optimizer", "optimizer"},
                                               {"data_time_frac", "data", "data"},
                                               {"other_time_frac", "other", "other"}};
  return kParts;
}

RunState state_of(const RunFiles& run) {
  using Kind = RunState::Kind;
  // What is written last counts: a run may have failed, and have been started again.
  for (auto event = run.events.rbegin(); event != run.events.rend(); ++event) {
    if (event->name == "start") break;
    if (event->name != "exit" && event->name != "error" && event->name != "job end") continue;
    const auto code = static_cast<int>(event->whole("code").value_or(-1) % 1000);
    return {code == 0                   ? Kind::finished
            : code == 75 || code == 130 ? Kind::interrupted
                                        : Kind::failed,
            exit_words(code)};
  }
  if (!files::is_surely_free(run.folder)) return {Kind::running, "running"};
  if (run.last("start") == nullptr) return {Kind::unknown, "it is not known how it ended: events.jsonl is missing"};
  return {Kind::failed, "ended without an exit event: killed, or its machine failed"};
}

RunFacts facts_of(const RunFiles& run) {
  const Columns& m = run.metrics;
  const std::vector<std::size_t> rows = measured_rows(run);
  RunFacts facts;
  if (m.rows() > 0) facts.last_step = m.steps.back();
  if (const Event* start = run.last("start")) {
    facts.planned_steps = start->whole("steps");
    facts.predicted_bytes = start->number("predicted_bytes");
    facts.predicted_step_s = start->number("predicted_step_s");
    if (facts.predicted_step_s == 0) facts.predicted_step_s.reset();  // not known on this device
  }
  facts.first_loss = first_of(m["loss"]);
  facts.last_loss = last_of(m["loss"]);
  for (const double loss : m["val/loss"])
    if (std::isfinite(loss)) facts.best_validation = std::min(loss, facts.best_validation.value_or(loss));
  facts.median_tokens_per_sec = median_of(of_rows(m["tokens_per_sec"], rows));
  facts.median_step_s = median_of(of_rows(m["train_time_s"], rows));
  facts.mfu = median_of(of_rows(m["mfu"], rows));
  facts.hfu = median_of(of_rows(m["hfu"], rows));
  const std::vector<double>& peaks = m["mem_peak_gib"];
  for (std::size_t i = 0; i < peaks.size(); ++i)
    if (const double gib = peaks[i]; std::isfinite(gib) && run.is_of_last_layout(m.steps[i]))
      facts.peak_gib = std::max(gib, facts.peak_gib.value_or(gib));
  facts.bubble = median_of(of_rows(m["bubble_frac"], rows));
  facts.ideal_bubble = last_of(of_rows(m["bubble_ideal_frac"], rows));
  for (const double seconds : m["train_time_s"])
    if (std::isfinite(seconds)) facts.train_seconds = facts.train_seconds.value_or(0) + seconds;
  add_shares(facts, m, rows);
  add_slowest(facts, run);
  return facts;
}

std::optional<double> median_of(std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

std::vector<double> steps_of(const Columns& metrics) {
  std::vector<double> out;
  for (const std::int64_t step : metrics.steps) out.push_back(static_cast<double>(step));
  return out;
}

std::string figure_name(std::size_t run, std::string_view name) { return text(run, ":", name); }

std::string run_colour(std::size_t run) { return text("run", run); }

}  // namespace trireme::report
