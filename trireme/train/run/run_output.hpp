#pragma once
// The outputs of a run on rank 0: console, metrics.jsonl, TensorBoard, a hub.
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/log.hpp"
#include "trireme/config/schema/config.hpp"
#include "trireme/metrics/best_effort.hpp"
#include "trireme/metrics/hub_logger.hpp"
#include "trireme/metrics/metrics_file.hpp"
#include "trireme/metrics/ranks_file.hpp"
#include "trireme/metrics/train_console.hpp"
#include "trireme/metrics/z_score.hpp"

namespace trireme {

class RunOutput {
 public:
  RunOutput(const Config& config, const std::filesystem::path& folder, std::ostream& out,
            const TerminalFacts& terminal);

  metrics::TrainConsole& console() { return console_; }
  /// Of the z-scores, oldest first; and those of a checkpoint.
  const metrics::ZScore& loss_z() const { return loss_z_; }
  const metrics::ZScore& norm_z() const { return norm_z_; }
  void continue_from(const std::vector<double>& losses, const std::vector<double>& norms);
  /// Adds the z-scores, writes the record to all outputs, and warns of a spike. A record that cannot be written (a full
  /// disk) is a warning.
  void step(metrics::StepRecord record);
  /// The ranks in that step, for ranks.jsonl; likewise.
  void ranks(const metrics::RanksRecord& record);
  /// The caller fills in the rest of the summary.
  void finish(metrics::RunSummary summary);

 private:
  void write(metrics::BestEffort& output, const std::function<void()>& record);

  metrics::TrainConsole console_;
  metrics::MetricsFile metrics_;
  metrics::RanksFile ranks_;
  metrics::BestEffort lines_{"metrics.jsonl"}, scalars_{"tb/"}, rank_lines_{"ranks.jsonl"};
  Log log_;  // for uploads: warnings go to the console
  std::unique_ptr<metrics::HubLogger> events_;
  metrics::ZScore loss_z_, norm_z_;
  std::vector<double> tokens_per_sec_;
  std::optional<double> first_loss_, last_loss_;
  std::int64_t steps_ = 0, skipped_ = 0;
};

}  // namespace trireme
