#pragma once
// The numbers of a run that are computed from its files: what the summary, the tables and the captions show.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/report/run_files.hpp"

namespace trireme::report {

/// How a run ended, as far as its files tell.
struct RunState {
  enum class Kind { finished, interrupted, failed, running, unknown } kind = Kind::unknown;
  std::string words;  // "finished", "stopped by SIGINT (exit code 130)"
};
RunState state_of(const RunFiles& run);

/// A part of a step: the key of its share in metrics.jsonl, its name and its colour.
struct StepPart {
  const char* key;
  const char* name;
  const char* colour;
};
const std::vector<StepPart>& step_parts();

struct RunFacts {
  std::optional<std::int64_t> last_step, planned_steps;
  std::optional<double> first_loss, last_loss, best_validation;
  std::optional<double> median_tokens_per_sec;  // of all steps but the first, which includes set-up
  std::optional<double> mfu, hfu;               // medians
  std::optional<double> peak_gib;
  std::optional<double> predicted_bytes, predicted_step_s;
  std::optional<double> median_step_s;                     // of all steps but the first
  std::vector<std::pair<const StepPart*, double>> shares;  // of the time of all steps but the first
  std::optional<double> bubble, ideal_bubble;              // medians of bubble_frac
  std::optional<int> slowest_rank;
  std::optional<double> slowest_excess;  // its own work over that of the median rank
  std::optional<double> train_seconds;   // of all steps
};
RunFacts facts_of(const RunFiles& run);

/// NaN are left out; nullopt if nothing is left. Of an even number, the upper one of the two in the middle.
std::optional<double> median_of(std::vector<double> values);

/// The steps as numbers of an axis.
std::vector<double> steps_of(const Columns& metrics);

/// "0:loss.last": the name of a number of a run in the page.
std::string figure_name(std::size_t run, std::string_view name);
/// "run0"
std::string run_colour(std::size_t run);

}  // namespace trireme::report
