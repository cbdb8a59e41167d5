#pragma once
// The main job: everything built from a Config and a ParallelContext, and the loop over steps.
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/engine/executor.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/optim/loss_scale.hpp"
#include "trireme/optim/lr_schedule.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"
#include "trireme/train/batches.hpp"
#include "trireme/train/device_memory.hpp"
#include "trireme/train/non_finite.hpp"
#include "trireme/train/run_output.hpp"
#include "trireme/zero/zero.hpp"

namespace trireme {

/// What the program around a training gives it.
struct TrainIo {
  std::ostream& out;
  TerminalFacts terminal{};
  std::string program{};                                    // "trireme 0.1.0"
  std::filesystem::path folder{};                           // of the run, which is there already; rank 0 writes to it
  std::string config_text{};                                // written to it as config.toml
  std::vector<std::string> warnings{};                      // to be shown
  std::function<bool()> stop_asked = [] { return false; };  // Ctrl-C
};

class Trainer {
 public:
  /// A call of all ranks. `config` is derived and checked. ConfigError, DataError, CheckpointError before any step.
  Trainer(Config config, ParallelContext& context, TrainIo io);
  ~Trainer();

  /// All steps, or until somebody asks to stop: ExitCode::done or interrupted. The weights are saved either way.
  /// NonFiniteError as [checks] says.
  ExitCode run();

  Zero& zero() { return *zero_; }
  Decoder& decoder() { return *decoder_; }

 private:
  struct Timing {
    double step = 0, data = 0, forward = 0, backward = 0, update = 0, validation = 0, waited = 0;
  };
  struct StepResult {
    double loss = 0, norm = 0, scale = 1;
    bool finite = true, stop = false;
    Timing timing;
  };

  void build();
  void print_header();
  StepResult run_step(std::int64_t step);
  void record(std::int64_t step, const StepResult& result, std::optional<double> validation_loss);
  double validate();
  [[noreturn]] void stop_non_finite(std::int64_t step, const StepResult& result);
  CrossEntropyOptions loss_options() const;
  at::Tensor loss_of(const Microbatch& microbatch, const Probe& probe);
  std::filesystem::path save(std::int64_t step);
  void finish(std::int64_t steps, bool interrupted);

  Config config_;
  ParallelContext& context_;
  Mesh& mesh_;
  TrainIo io_;
  DeviceMemory memory_;
  std::shared_ptr<Decoder> decoder_;
  std::unique_ptr<Batches> batches_;
  std::unique_ptr<Zero> zero_;
  std::unique_ptr<Executor> executor_;
  LrSchedule lr_;
  std::optional<LossScale> scale_;     // f16
  std::unique_ptr<RunOutput> output_;  // of rank 0
  std::int64_t tokens_ = 0, peak_bytes_ = 0, skipped_since_shown_ = 0;
  double predicted_bytes_ = 0;
  Timing total_;
  at::Tensor seed_;  // of the last step
};

}  // namespace trireme
