// What a Trainer saves, and when: checkpoints during the run, and the last one.
#include <chrono>
#include <iostream>
#include <new>
#include <thread>

#include "trireme/base/stop_signals.hpp"
#include "trireme/base/stopwatch.hpp"
#include "trireme/base/wall_clock.hpp"
#include "trireme/comm/group_text.hpp"
#include "trireme/comm/time_limit.hpp"
#include "trireme/nn/fp8_history.hpp"
#include "trireme/train/run/trainer.hpp"

namespace trireme {

checkpoint::Manifest Trainer::manifest_of(std::int64_t step) const {
  checkpoint::Manifest manifest;
  manifest.program = io_.program;
  manifest.time = utc_text(std::chrono::system_clock::now());
  manifest.config = given_;
  for (const auto& [axis, degree] : mesh_.grid().axes()) manifest.layout[name(axis)] = degree;
  if (config_.parallelism.ep > 1) manifest.layout[name(Axis::ep)] = config_.parallelism.ep;
  manifest.layout["world"] = context_.world_size();
  manifest.layout["zero"] = config_.parallelism.zero;
  checkpoint::TrainingState& state = manifest.training;
  state.step = step;
  state.optimizer_steps = model_->zero().parts()[0]->optimizer.steps();
  state.skipped = skipped_;
  state.samples_consumed = batches_->data().sampler().position(step).consumed;
  state.data = batches_->data().identity();
  if (scale_)
    state.loss_scale = {
        .scale = scale_->scale(), .good_steps = scale_->state().good_steps, .patience = scale_->state().patience};
  if (report_) report_->add_to(state);
  return manifest;
}

/// What a resume on the same layout needs of this rank.
RankState Trainer::rank_state() {
  RankState out{{checkpoint::kRandom, to_bytes(get_current_random_state(random_))}};
  if (const Fp8History* history = model_->fp8_history()) out[checkpoint::kFp8History] = to_bytes(history->state());
  return out;
}

void Trainer::start_save(std::int64_t step, Last last) {
  mesh_.tag({step, "save"});
  zero().finish_gathers();
  saver_->start(zero(), manifest_of(step), rank_state());
  if (!config_.checkpoint.async || last == Last::yes) saver_->finish();
}

/// Rank 0 reports what became of the saves: if one failed, training goes on, and the next one may succeed. After
/// `max_failures` in a row nobody should trust in that any more: StorageError.
void Trainer::tell_outcomes(std::int64_t max_failures) {
  while (const std::optional<SaveOutcome> outcome = saver_->take_outcome()) {
    if (outcome->failure.empty())
      report_->saved(outcome->step, outcome->bytes, outcome->blocked_seconds);
    else
      report_->warning(text("checkpoint ", outcome->step, " was not saved, training continues: ", outcome->failure));
    if (!outcome->warning.empty()) report_->warning(outcome->warning);
    failed_saves_.add(outcome->step, outcome->failure, max_failures);
  }
}

/// The last checkpoint of this run. A run that fails in a step may have saved the one before it already.
SavedWeights Trainer::save(std::int64_t step, Export exports) {
  mesh_.tag({step, "save"});
  if (report_) StopSignals::announce("saving a checkpoint after step ", step, "");
  saver_->finish();
  if (report_) tell_outcomes(/*max_failures=*/0);  // this one is still to be tried
  const std::filesystem::path folder = io_.folder / "checkpoints" / text("step-", step);
  const bool is_saved = context_.rank() == 0 && checkpoint::why_not_valid(folder).empty();
  if (!broadcast_text(mesh_.world().control(), is_saved ? "saved" : "").empty()) return finish_save(folder, exports);
  wait_for_space(folder);
  start_save(step, Last::yes);
  const SaveOutcome outcome = saver_->take_outcome().value_or(SaveOutcome{});
  const std::string failure = broadcast_text(mesh_.world().control(), outcome.failure);  // only rank 0 has an outcome
  if (outcome.no_memory) throw std::bad_alloc();  // on rank 0, which says what could be done
  require<CheckpointError>(failure.empty(), failure);
  return finish_save(folder, exports);
}

/// The checkpoint is complete: whatever happens to the weights for transformers, it stays.
SavedWeights Trainer::finish_save(const std::filesystem::path& folder, Export exports) {
  if (exports == Export::yes && config_.checkpoint.export_hf)
    export_to_checkpoint(
        zero(), mesh_, config_.model, folder,
        {.warning_s = config_.checkpoint.stall_warning_s, .timeout_s = config_.checkpoint.stall_timeout_s});
  return {folder, not_finite_weights(zero(), mesh_)};
}

/// The state is only in memory: while the disk is too full for it, there is time to free some of it. Collective.
void Trainer::wait_for_space(const std::filesystem::path& folder) {
  const LongWork waiting(mesh_.world(), 0);
  std::string missing;
  if (context_.rank() == 0) {
    const Stopwatch time;
    missing = missing_space(zero(), config_, folder);
    if (!missing.empty())
      std::cerr << "warning: " << missing << "\n  waits up to " << config_.comm.init_timeout_s << " s for space"
                << std::endl;
    while (!missing.empty() && time.seconds() <= config_.comm.init_timeout_s) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      waiting.progress();
      missing = missing_space(zero(), config_, folder);
    }
  }
  missing = broadcast_text(mesh_.world().control(), missing);
  require<CheckpointError>(missing.empty(), missing);
}

}  // namespace trireme
