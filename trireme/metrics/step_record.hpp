#pragma once
// The metrics of one optimizer step: the source of everything written about a step, in files or on the terminal.
#include <cmath>
#include <cstdint>
#include <optional>

namespace trireme::metrics {

/// The fractions and rates are of `train_time_s`; fractions are from 0 to 1.
/// Values that could not be measured are absent, never invented.
struct StepRecord {
  std::int64_t step = 0;   // the first is 1
  double time = 0;         // when it ended, in seconds since 1970
  std::int64_t steps = 0;  // planned
  double loss = 0;
  double grad_norm = 0;              // before clipping
  std::optional<double> aux_loss{};  // of routers; trained together with `loss`, which does not contain it
  double lr = 0;
  std::int64_t tokens = 0;  // consumed so far
  double tokens_per_sec = 0;
  double tokens_per_sec_per_rank = 0;
  double step_time_s = 0;   // from the end of the step before: with validation and saving
  double train_time_s = 0;  // data, forward, backward, update
  double data_time_frac = 0;
  // With the one above they sum to 1 (step_shares.hpp); absent on GPUs.
  std::optional<double> forward_time_frac{}, backward_time_frac{}, comm_exposed_frac{}, bubble_time_frac{},
      optimizer_time_frac{}, other_time_frac{};
  std::optional<double> bubble_frac{}, bubble_ideal_frac{};
  std::optional<int> slowest_rank{};  // it worked longest, without its waits for others; absent on GPUs and alone
  std::optional<double> own_work_max_s{}, own_work_min_s{};  // of the slowest and of the fastest rank
  std::optional<double> mfu{}, hfu{};
  std::optional<double> tflops_per_rank{};
  std::optional<double> hardware_tflops_per_rank{};  // with what is recomputed; only if something is
  std::optional<double> mem_peak_gib{};              // the highest of all ranks so far
  std::optional<double> mem_start_gib{};  // the highest of all ranks before the first step; in its record only
  std::optional<double> loss_scale{};     // fp16
  bool skipped = false;                   // the update was not applied
  std::optional<double> loss_z{};
  std::optional<double> grad_norm_z{};
  std::optional<double> val_loss{};
  std::optional<double> checkpoint_s{};  // that training waited for a checkpoint, on rank 0; since the step before

  /// No token of the step has a label: there is no loss to show.
  bool has_no_label() const { return std::isnan(loss) && std::isfinite(grad_norm); }
};

}  // namespace trireme::metrics
