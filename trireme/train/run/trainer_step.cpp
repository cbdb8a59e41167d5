// One step of a Trainer: enqueued, its results read and acted upon, and validation.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include <ATen/ops/zeros.h>

#include "trireme/base/human.hpp"
#include "trireme/base/stopwatch.hpp"
#include "trireme/runtime/memory/device_snapshot.hpp"
#include "trireme/train/run/step_in_flight.hpp"

namespace trireme {
namespace {

/// Of the sum of a microbatch's losses: the loss of a step is the mean over the tokens of all ranks.
at::Tensor loss_gradient(double scale, TokenCount& tokens) { return scale / tokens.total().clamp_min(1); }

/// Of no token there is no mean: NaN, which is null in the records.
double mean_loss(double sum, double tokens) {
  return tokens > 0 ? sum / tokens : std::numeric_limits<double>::quiet_NaN();
}

/// So many at the start, and the data have none, or something else is wrong with them.
constexpr std::int64_t kStepsWithoutLabels = 10;

/// At the end of a step, which took `seconds`. `agreed_at`: seconds from its begin to the end of the agreement.
StepTiming step_timing(const StepClock& clock, double seconds, const StepAgreement& agreed, double agreed_at,
                       bool pipeline) {
  return {.begin_ns = clock.begin_ns(),
          .step = seconds,
          .data = clock.data_seconds(),
          .shares = metrics::shares_of({.step = seconds,
                                        .tail = std::max(0.0, seconds - agreed_at),
                                        .ranks = agreed.time,
                                        .last_actions = agreed.last_actions,
                                        .pipeline = pipeline}),
          .own_work = agreed.own_work,
          .bubbles = agreed.bubbles};
}

}  // namespace

/// If the data of this rank cannot be read, it goes on without tokens: the others are in the step already.
template <class Take, class Empty>
auto Trainer::take_or_empty(const Take& take, const Empty& empty) {
  try {
    return take();
  } catch (const DataError&) {
    data_error_ = std::current_exception();
    return empty();
  }
}

/// Enqueues a step. Ahead of its update the results of the step before are read, which decide what the update is: by
/// then the device is busy with this step.
std::unique_ptr<Trainer::StepInFlight> Trainer::start_step(std::int64_t step, std::unique_ptr<StepInFlight> before) {
  auto now = std::make_unique<StepInFlight>(
      StepInFlight{.step = step,
                   .result = {.lr = lr_(step), .scale = scale_ ? scale_->scale() : 1.0, .peaks = {}, .timing = {}},
                   .clock = StepClock(context_.world().recorder(), config_.parallelism.pp > 1),
                   .random = get_current_random_state(random_)});
  if (const Fp8History* history = model_->fp8_history()) now->fp8 = history->state();
  StepResult& result = now->result;
  StepOutcome& outcome = now->outcome;
  mesh_.tag({step, "data"});
  tracer_.step_begins(step, model_->unit_trace());

  // Data. The all-reduce of the token count overlaps the first forward.
  const std::vector<Microbatch> microbatches =
      take_or_empty([&] { return batches_->take(step); }, [&] { return batches_->empty(step); });
  now->clock.data_taken();
  TokenCount tokens(microbatches, data_error_ != nullptr, mesh_, context_.device());

  // Forward and backward of every microbatch.
  at::Tensor auxiliary_sum = at::zeros({}, at::TensorOptions(at::kDouble).device(context_.device()));
  if (is_traced(step)) release_graphs();
  outcome = model_->run_step({.step = step,
                              .microbatches = microbatches,
                              .loss_gradient = [&] { return loss_gradient(result.scale, tokens); },
                              .auxiliary_factor = auxiliary_factor(step, result.scale),
                              .auxiliary_loss = [&](const at::Tensor& sum) { auxiliary_sum += sum; },
                              .uses_graphs = !is_traced(step)});
  now->loss_gradient = loss_gradient(result.scale, tokens);
  now->clock.executed(outcome);

  // Wait for the gradient reduction; then the ranks compare their calls of the step, during the update.
  mesh_.tag({step, "update"});
  zero().finish_gradients();
  if (before) finish_step(std::move(before));
  tracer_.gradients_summed(step, model_->unit_trace());
  if (compares_replicas(step)) now->replicas.add(gradient_slices(zero()));
  saver_->before_update();
  StepCheck check = mesh_.start_step_check();

  // Update. Whether it counts is known once the norm has been read.
  const double skip_z = config_.optimizer.skip_z;
  now->skip_above = skip_z > 0 ? norms_.value_of_score(skip_z) : std::numeric_limits<double>::infinity();
  now->update.emplace(zero().update({.lr = result.lr,
                                     .max_norm = config_.training.max_norm,
                                     .loss_scale = result.scale,
                                     .skip_above = now->skip_above}));
  std::move(check).finish();
  now->agreement = start_agreement(outcome.loss_sum, now->update->norm(), tokens.total(),
                                   {.stop = io_.stop_asked(),
                                    .failed = data_error_ != nullptr,
                                    .save = io_.save_asked(),
                                    .writing = saver_->is_writing(),
                                    .peak_bytes = memory_.take_peak() + hidden_bytes(step),
                                    .bubble = outcome.bubble(),
                                    .time = now->clock.until_now(),
                                    .last_action = now->clock.last_action_seconds(),
                                    .auxiliary_sum = auxiliary_sum},
                                   mesh_);
  return now;
}

/// Of memory in graphs, which the allocator does not count.
std::int64_t Trainer::hidden_bytes(std::int64_t step) {
  MicrobatchGraphs* const graphs = is_traced(step) ? nullptr : model_->graphs();
  return graphs ? graphs->take_hidden_bytes() : 0;
}

/// Ahead of work that does not use them, and could not use their memory either.
void Trainer::release_graphs() {
  if (MicrobatchGraphs* const graphs = model_->graphs()) graphs->release();
}

/// Waits for the device.
StepResult Trainer::read_step(StepInFlight& of) {
  StepResult& result = of.result;
  const StepAgreement agreed = std::move(of.agreement).read();
  const double agreed_at = of.clock.seconds();
  result.norm = agreed.norm;
  std::move(*of.update).settle(result.norm);
  result.finite = std::isfinite(result.norm);
  result.norm_is_outlier = result.finite && result.norm > of.skip_above;
  norms_.add(result.norm);
  model_->update_routers(result.finite && !result.norm_is_outlier);
  if (saver_->in_progress() && !agreed.writing) saver_->settle();
  if (compares_replicas(of.step)) {
    zero().finish_gathers();
    of.replicas.add(slices_to_load(zero()));
    of.replicas.add(kept_weight_slices(zero()));
    of.replicas.compare(mesh_.world(), of.step);
  }
  result.valid_tokens = agreed.tokens;
  result.loss = mean_loss(agreed.loss_sum, result.valid_tokens);
  result.auxiliary_loss = agreed.auxiliary_sum * auxiliary_factor(of.step, 1);
  result.stop = agreed.stop;
  result.data_failed = agreed.failed;
  result.save = agreed.save;
  result.bubble = agreed.bubble;
  result.checkpoint_seconds = saver_->take_blocked_seconds();
  if (of.step == begin_ + 1) result.start_bytes = start_bytes_;
  tracer_.step_done(of.outcome);
  if (config_.profiler.memory_snapshot == "steps" && is_traced(of.step))
    write_device_snapshot(io_.folder / "memory" / text("rank", context_.rank(), "_step", of.step, ".pickle"));
  // A step that was enqueued while the one before was still running begins at the end of that one.
  const std::int64_t now_ns = steady_ns();
  const double seconds = static_cast<double>(now_ns - std::max(of.clock.begin_ns(), last_read_ns_)) * 1e-9;
  last_read_ns_ = now_ns;
  result.timing = step_timing(of.clock, seconds, agreed, agreed_at, config_.parallelism.pp > 1);
  result.peaks = agreed.peaks;
  peak_bytes_ = std::max(peak_bytes_, agreed.peak_bytes);
  return result;
}

/// Reads the results of a step, acts on them, and reports them.
void Trainer::finish_step(std::unique_ptr<StepInFlight> of) {
  const std::int64_t step = of->step;
  const bool was_asked = stop_.has_value();  // a late step is followed by one that is on its way
  StepResult result = read_step(*of);
  // A smaller loss scale helps only if just the scaled gradients overflowed.
  const bool scale_helps = scale_ && result.scale > 1 && std::isfinite(result.loss);
  if (result.data_failed) {
    set_rank_state(*of);
    stop_without_data(step - 1);
  }
  if (!result.finite && !scale_helps && non_finite_ == config::NonFinite::stop) stop_non_finite(*of, result);
  if (result.valid_tokens == 0 && unlabelled_++ == 0 && report_)
    report_->warning(text("step ", step,
                          ": no token of the batch has a label: the loss of such a step is null, and it ",
                          "learns nothing from the data"));
  require<DataError>(begin_ > 0 || unlabelled_ < std::min(kStepsWithoutLabels, config_.training.steps),
                     "no token of the first ", unlabelled_, unlabelled_ == 1 ? " step" : " steps",
                     " has a label to learn (", batches_->data().describe(),
                     ")\n  fix: data whose samples hold unmasked tokens");
  // Not before: a checkpoint of a stop above is of the step before this one.
  if (scale_) scale_->update(!result.finite);
  if ((!result.finite && !scale_helps) || result.norm_is_outlier) ++skipped_;
  if (Fp8History* history = model_->fp8_history(); history && (!result.finite || result.norm_is_outlier))
    history->discard(of->is_read_at_once);
  if (result.stop) stop_ = result.stop;
  result.is_last = stop_ && (was_asked || of->is_read_at_once);
  save_asked_ = save_asked_ || result.save;
  std::optional<double> validation_loss;
  if (is_validated(step)) {
    const Stopwatch validation_time;
    validation_loss = validate(step);
    validation_seconds_ += validation_time.seconds();
  }
  tell_outcomes(config_.checkpoint.max_failures);
  // Before the save: a run that resumes there has the records of all steps before.
  if (report_) report_->step(step, result, batches_->data().sampler().seq_len(step), peak_bytes_, validation_loss);
}

/// As it was at the start of a step.
void Trainer::set_rank_state(const StepInFlight& of) {
  set_random_state(random_, of.random);
  Fp8History* const history = model_->fp8_history();
  if (history && !history->set_state(of.fp8)) history->reset();  // the first step begins without a state
}

/// Auxiliary losses are means over the tokens of a step, also of those without a target.
double Trainer::auxiliary_factor(std::int64_t step, double scale) const {
  const std::int64_t tokens = config_.training.global_batch_size * batches_->data().sampler().seq_len(step);
  return scale / static_cast<double>(tokens);
}

double Trainer::validate(std::int64_t done) {
  mesh_.tag({done, "validation"});
  const at::NoGradGuard no_grad;
  at::Tensor sums = at::zeros({3}, at::TensorOptions(at::kDouble).device(context_.device()));
  std::int64_t valid = 0;
  sums[0] += model_->evaluate(batches_->num_validation_batches(), [&](std::int64_t b) {
    Microbatch batch =
        take_or_empty([&] { return batches_->validation_batch(b); }, [&] { return batches_->empty(1)[0]; });
    valid += batch.valid;
    return batch;
  });
  if (mesh_.coord(Axis::pp) == 0) sums[1] += valid;  // the same on all ranks of the pipeline
  if (data_error_ != nullptr) sums[2] += 1;
  sums = mesh_.world_group().all_reduce_(sums).wait().cpu();
  if (sums[2].item<double>() > 0) stop_without_data(done);
  const double tokens = sums[1].item<double>();
  if (tokens == 0 && report_ && !std::exchange(told_of_validation_, true))
    report_->warning(text("validation after step ", done, ": no token of its data has a label: its loss is null"));
  return mean_loss(sums[0].item<double>(), tokens);
}

/// Some rank could not read its data, and all ranks are here: the weights are saved first.
[[noreturn]] void Trainer::stop_without_data(std::int64_t done) {
  const std::string saved =
      done > 0 ? text("\n  the checkpoint after step ", done, " is ", save(done).folder.string()) : "";
  if (data_error_ == nullptr) {
    std::this_thread::sleep_for(std::chrono::seconds(1));  // the rank with the reason reports first
    throw DataError(text("another rank could not read its data after step ", done, saved));
  }
  try {
    std::rethrow_exception(data_error_);
  } catch (const DataError& e) {
    throw DataError(e.what() + saved);
  }
}

[[noreturn]] void Trainer::stop_non_finite(const StepInFlight& of, const StepResult& result) {
  const std::int64_t step = of.step;
  zero().finish_gathers();
  release_graphs();
  const std::vector<Microbatch> microbatches = batches_->take(step);
  set_rank_state(of);  // the same numbers as in the step
  const std::string origin = find_non_finite(zero(), mesh_, [&](const StepProbes& probes) {
    model_->run_step({.step = step,
                      .microbatches = microbatches,
                      .loss_gradient = [&] { return of.loss_gradient; },
                      .auxiliary_factor = auxiliary_factor(step, result.scale),
                      .probes = probes});
  });
  set_rank_state(of);
  const std::string saved = step > 1 ? str(save(step - 1)) : "";
  throw NonFiniteError(text("step ", step, ": the gradients are not finite (loss ", human_number(result.loss),
                            ", norm ", human_number(result.norm), ")\n  ", origin,
                            "\n  nothing was updated: weights and states are those after step ", step - 1, saved,
                            "\n  fix: a lower optimizer.lr or a longer warm-up; checks.non_finite = \"skip\" skips "
                            "such steps"));
}

}  // namespace trireme
