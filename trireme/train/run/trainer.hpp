#pragma once
// The trainer: builds everything from a Config and a ParallelContext, and runs the training loop.
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/error.hpp"
#include "trireme/comm/random_state.hpp"
#include "trireme/config/schema/choices.hpp"
#include "trireme/config/schema/lr_schedule.hpp"
#include "trireme/optim/loss_scale.hpp"
#include "trireme/runtime/process_setup.hpp"
#include "trireme/runtime/profiler.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"
#include "trireme/train/run/own_folder.hpp"
#include "trireme/train/run/resume.hpp"
#include "trireme/train/run/training_report.hpp"
#include "trireme/train/save/checkpoint_saver.hpp"
#include "trireme/train/save/failed_saves.hpp"
#include "trireme/train/save/save_weights.hpp"
#include "trireme/train/step/batches.hpp"
#include "trireme/train/step/training_model.hpp"
#include "trireme/train/trace/device_memory.hpp"
#include "trireme/train/trace/step_tracer.hpp"

namespace trireme {

class Trainer {
 public:
  /// Collective. `config` is derived and checked. The training continues from the newest usable checkpoint of its
  /// folder, or of checkpoint.resume. ConfigError, DataError, CheckpointError before the first step.
  Trainer(Config config, ParallelContext& context, const ProcessSetup& process, TrainIo io);
  ~Trainer();

  /// Runs all steps, or until a stop is requested: ExitCode::done, interrupted or preempted. A checkpoint is saved in
  /// all cases. NonFiniteError depending on [checks], and for weights that are not finite or were never updated.
  ExitCode run();

  Zero& zero() { return model_->zero(); }

 private:
  struct StepInFlight;
  std::unique_ptr<StepInFlight> start_step(std::int64_t step, std::unique_ptr<StepInFlight> before);
  StepResult read_step(StepInFlight& step);
  void release_graphs();
  std::int64_t hidden_bytes(std::int64_t step);
  void finish_step(std::unique_ptr<StepInFlight> step);
  bool is_read_at_once(std::int64_t step) const;
  bool is_validated(std::int64_t step) const;
  bool is_saved(std::int64_t step) const;
  bool is_traced(std::int64_t step) const;
  bool compares_replicas(std::int64_t step) const;
  void start_profiler();
  void announce_stop(std::int64_t step);
  double auxiliary_factor(std::int64_t step, double scale) const;
  double validate(std::int64_t done);
  template <class Take, class Empty>
  auto take_or_empty(const Take& take, const Empty& empty);
  [[noreturn]] void stop_without_data(std::int64_t done);
  [[noreturn]] void stop_non_finite(const StepInFlight& step, const StepResult& result);
  void resume_from_checkpoint(const std::vector<std::filesystem::path>& candidates);
  checkpoint::Manifest manifest_of(std::int64_t step) const;
  enum class Last { no, yes };
  enum class Export { no, yes };  // a Hugging Face folder, if checkpoint.export_hf
  RankState rank_state();
  void set_rank_state(const StepInFlight& of);
  void start_save(std::int64_t step, Last last);
  SavedWeights save(std::int64_t step, Export exports = Export::no);
  void tell_outcomes(std::int64_t max_failures);
  std::size_t save_buffer_bytes();
  SavedWeights finish_save(const std::filesystem::path& folder, Export exports);
  void wait_for_space(const std::filesystem::path& folder);

  const KeyValues given_;  // the config as it was given
  Config config_;
  ParallelContext& context_;
  Mesh& mesh_;
  TrainIo io_;
  std::unique_ptr<OwnFolder> own_;  // only on rank 0: no other run writes to this run's folder
  DeviceMemory memory_;
  LrSchedule lr_;
  config::NonFinite non_finite_;
  std::optional<LossScale> scale_;  // only for f16
  metrics::ZScore norms_;           // for optimizer.skip_z
  StepTracer tracer_;
  std::optional<Profiler> profiler_;  // profiler.operations
  std::unique_ptr<Batches> batches_;
  SmallFiles beside_weights_;  // only on rank 0
  std::unique_ptr<TrainingModel> model_;
  RandomSource random_;
  std::optional<Resumed> resumed_;
  std::unique_ptr<TrainingReport> report_;  // only on rank 0
  std::unique_ptr<CheckpointSaver> saver_;
  std::int64_t begin_ = 0;           // steps that are done when this run begins
  std::int64_t start_bytes_ = 0;     // peak before the first step, of any rank
  std::int64_t peak_bytes_ = 0;      // of any rank
  std::int64_t unlabelled_ = 0;      // steps without a token that has a label
  bool told_of_validation_ = false;  // that its data have no labels
  std::int64_t skipped_ = 0;         // updates that no smaller loss scale would have saved
  // Of the steps whose results have been read:
  std::optional<ExitCode> stop_;  // asked to stop
  bool save_asked_ = false;       // asked for a checkpoint that is not started yet
  FailedSaves failed_saves_;      // only on rank 0
  double validation_seconds_ = 0;
  std::int64_t last_read_ns_ = 0;  // when the results of the last one were read, by steady_ns()
  std::exception_ptr data_error_;  // of this rank, for the step that needed the data
};

}  // namespace trireme
