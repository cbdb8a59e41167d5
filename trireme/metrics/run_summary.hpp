#pragma once
// The summary printed at the end of a run.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/terminal.hpp"

namespace trireme::metrics {

struct SlowestRank {
  int rank = 0;
  double excess = 0;  // 0.021: it works 2.1 % longer than the median rank
};

/// `own_work`: of each rank, at least one.
SlowestRank slowest_rank(const std::vector<double>& own_work);

struct RunSummary {
  std::int64_t steps = 0;  // completed by this run
  double seconds = 0;
  std::optional<double> first_loss{}, last_loss{};  // both or none
  std::optional<double> median_tokens_per_sec{};
  std::optional<SlowestRank> slowest{};
  std::vector<std::pair<std::string, double>> shares{};  // breakdown of the step time: name, fraction
  std::optional<double> memory_predicted_gib{}, memory_measured_gib{};
  std::optional<std::filesystem::path> saved{};  // the folder of the saved model
  std::int64_t skipped = 0;                      // steps whose update was not applied
  bool interrupted = false;
  std::vector<std::string> next{};  // suggested next commands
};

/// `label` dim and padded to a column of 8, then `text`: lines above and below the table have the same format.
std::string labelled_line(const std::string& label, const std::string& text, const Style& style);
/// The same, in as many lines as it needs: broken behind a "·", or between words where that is not enough, so that each
/// fits `width` columns if its words do.
std::string wrapped_line(const std::string& label, const std::string& text, const Style& style, int width);

/// Lines with their newlines; prose is broken between words if there is a `width`. Paths and commands never are.
std::string summary_text(const RunSummary& summary, const Style& style, std::optional<int> width = std::nullopt);

/// {"done":{"steps":400, ...}} without a newline; absent fields are omitted, and so is `next`.
std::string summary_json(const RunSummary& summary);

}  // namespace trireme::metrics
