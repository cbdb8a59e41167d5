#pragma once
// What rank 0 prints and records of a run: header, steps, summary.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/format/manifest.hpp"
#include "trireme/config/schema/config.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"
#include "trireme/train/run/run_output.hpp"
#include "trireme/train/trace/step_timing.hpp"

namespace trireme {

/// Inputs from the program that starts a training.
struct TrainIo {
  std::ostream& out;
  TerminalFacts terminal{};
  std::string program{};                // "trireme 0.1.0"
  std::string command{};                // the command line that started the run
  std::filesystem::path folder{};       // of the run, must exist; rank 0 writes to it
  std::string config_text{};            // written to the folder as config.toml
  std::vector<std::string> warnings{};  // to be displayed
  std::function<void(const std::string&)> status = [](const std::string&) {};  // what the start is doing; "": over
  std::function<std::optional<ExitCode>()> stop_asked = [] { return std::nullopt; };  // by a signal: the exit code
  std::function<bool()> save_asked = [] { return false; };  // by a signal, since the last call
  /// The results of a step are read during the next one, as on a GPU, also on a CPU: for tests.
  bool late_results = false;
};

/// The result of a step, the same on all ranks.
struct StepResult {
  double loss = 0, norm = 0, lr = 0;
  double auxiliary_loss = 0;  // of the layers, not in `loss`
  double scale = 1;           // loss scale
  double valid_tokens = 0;    // targets that count, of all ranks
  bool finite = true;
  bool norm_is_outlier = false;               // finite, but beyond optimizer.skip_z: nothing was updated
  std::optional<ExitCode> stop{};             // asked to stop, with this exit code
  std::optional<std::int64_t> start_bytes{};  // in the first step: peak memory before it, of any rank
  bool is_last = false;                       // of the run, because it was asked to stop
  bool data_failed = false;                   // a rank could not read its data: nothing was updated
  bool save = false;                          // asked to save a checkpoint
  double bubble = 0;                          // of the pipeline rank with the largest (StepOutcome::bubble)
  double checkpoint_seconds = 0;              // waited for one, on this rank, since the step before
  std::vector<double> peaks{};                // memory of each rank in this step
  StepTiming timing;
};

class TrainingReport {
 public:
  /// Prints the header. `data`: a description of the training data. `resumed`: the state that the run continues from,
  /// and where it is from, for display; null for a new one.
  TrainingReport(const Config& config, const ParallelContext& context, const TrainIo& io, const std::string& data,
                 const checkpoint::TrainingState* resumed = nullptr, const std::string& resumed_from = "");

  /// What a checkpoint stores of the report.
  void add_to(checkpoint::TrainingState& state) const;
  /// A save that is over, for the next line.
  void saved(std::int64_t step, std::uint64_t bytes, double blocked_seconds);
  void warning(const std::string& words) { output_.console().warning(words); }

  /// At the very end of a step, after validation and saving: step_time_s ends here.
  void step(std::int64_t step, const StepResult& result, std::int64_t seq_len, std::int64_t peak_bytes,
            std::optional<double> validation_loss);
  void finish(bool interrupted, std::int64_t peak_bytes, const std::filesystem::path& saved, double seconds,
              double validation_seconds);

 private:
  void note_start(const TrainIo& io, const std::string& backend) const;
  void add_times(metrics::StepRecord& record, const StepTiming& timing) const;
  std::string predict_speed();
  void print_header(const TrainIo& io, const std::string& data, const std::string& resumed_from);
  void note(std::int64_t step, const StepResult& result, bool is_shown);
  std::vector<std::string> next_commands(bool interrupted, bool has_saved) const;

  const Config config_;
  const ParallelContext& context_;
  const std::filesystem::path folder_;  // of the run
  const std::string command_;           // that started it
  RunOutput output_;
  double predicted_bytes_ = 0;
  double predicted_step_s_ = 0;       // 0: not known
  double peak_tflops_ = 0;            // of a rank's device; 0: not known
  std::int64_t counted_seq_len_ = 0;  // for which flops_per_token_ is
  double flops_per_token_ = 0, recomputed_flops_per_token_ = 0;
  double ideal_bubble_ = 0;  // with actions of equal length and free transfers
  const std::int64_t first_step_;
  std::int64_t tokens_ = 0, skipped_since_shown_ = 0;
  std::int64_t last_end_ns_ = 0;  // of the last step; 0: there was none
  metrics::StepShares total_;     // seconds, of all steps
  std::vector<double> own_work_;  // by rank: seconds, of all steps after the first
};

}  // namespace trireme
