#pragma once
// Parameters, gradients and optimizer states of a model over dp x cp, as one thing: what a training loop talks to.
#include <vector>

#include "trireme/zero/grad_norm.hpp"
#include "trireme/zero/grad_reducer.hpp"
#include "trireme/zero/sharded_optimizer.hpp"
#include "trireme/zero/sharded_params.hpp"

namespace trireme {

///   for each microbatch:  zero.begin_microbatch(is_last);  forward;  backward;  zero.end_microbatch();
///   zero.update({.lr = ...});
/// A model that has units calls zero.params() around them (nn/unit.hpp); for one that has none, finish_gathers() before
/// the next forward.
class Zero {
 public:
  Zero(std::vector<Param> params, UnitPlan units, Mesh& mesh, const ZeroOptions& options, UpdateOptions update,
       const ShardedParams::Fill& fill = {});

  void begin_microbatch(bool last) { gradients_.begin_microbatch(last); }
  void end_microbatch();

  struct Step {
    double lr = 0;
    double max_norm = 0;    // 0: no clipping
    double loss_scale = 1;  // what the loss was multiplied by
  };
  /// Waits for the sums of all gradients: what a step's communication ends with. update() does it otherwise.
  void sum_gradients();
  /// Sums, clips and updates. Returns the norm of the gradients before clipping, without the loss scale: 0-dim, f64, on
  /// the device. Where it is not finite nothing was changed; settle() must be told once the caller knows.
  at::Tensor update(const Step& step);
  /// After every update: whether it counted. Between the two the device need not have been asked.
  void settle(bool finite) {
    if (!finite) optimizer_.forget_step();
  }

  const Partition& partition() const { return partition_; }
  ShardedParams& params() { return params_; }
  GradReducer& gradients() { return gradients_; }
  GradNorm& grad_norm() { return norm_; }
  ShardedOptimizer& optimizer() { return optimizer_; }

 private:
  Partition partition_;
  ShardedParams params_;
  GradReducer gradients_;
  GradNorm norm_;
  ShardedOptimizer optimizer_;
  bool summed_ = false;
};

}  // namespace trireme
