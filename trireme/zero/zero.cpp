#include "trireme/zero/zero.hpp"

namespace trireme {

Zero::Zero(std::vector<Param> params, UnitPlan units, Mesh& mesh, const ZeroOptions& options, UpdateOptions update,
           const ShardedParams::Fill& fill)
    : partition_(std::move(params), std::move(units), mesh, options),
      params_(partition_, fill),
      gradients_(partition_),
      norm_(partition_),
      optimizer_(params_, gradients_, std::move(update)) {
  if (options.stage >= 3) gradients_.on_bucket_complete([this](std::size_t b) { params_.backward_done(b); });
}

void Zero::end_microbatch() {
  params_.free_all();
  gradients_.end_microbatch();
}

void Zero::sum_gradients() {
  gradients_.finish();
  params_.finish_gathers();  // of buckets that no forward has asked for
  summed_ = true;
}

at::Tensor Zero::update(const Step& step) {
  if (!summed_) sum_gradients();
  summed_ = false;
  partition_.mesh().end_step();
  const at::Tensor norm = norm_.norm(gradients_);
  optimizer_.step(step.lr, {update_factor(norm, step.max_norm, step.loss_scale)});
  return norm / step.loss_scale;
}

}  // namespace trireme
