#pragma once
// The update of what this rank keeps: master weights and states exist of its own parts only.
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "trireme/optim/optimizer.hpp"
#include "trireme/zero/grad_reducer.hpp"
#include "trireme/zero/sharded_params.hpp"

namespace trireme {

struct UpdateOptions {
  OptimizerOptions optimizer{};
  std::function<std::unique_ptr<Optimizer>(const OptimizerOptions&)> make = make_optimizer;
  at::ScalarType master = at::kFloat;  // the same as the parameters': they are their own master
  at::ScalarType states = at::kFloat;
};

class ShardedOptimizer {
 public:
  ShardedOptimizer(ShardedParams& params, const GradReducer& gradients, std::shared_ptr<const Optimizer> optimizer,
                   const UpdateOptions& options);

  /// Updates every bucket's part, those that forward needs first at the beginning, and gathers what is kept whole; with
  /// overlap a gather runs under the next update and under the next forward.
  void step(double lr, const kernels::GradientFactor& factor);
  /// The factor of the last step was NaN, so that it changed nothing: it does not count.
  void forget_step() { --steps_; }

  std::int64_t steps() const { return steps_; }
  const std::vector<std::string>& state_names() const { return optimizer_->state_names(); }
  const at::Tensor& master(std::size_t b) const { return parts_[b].master; }
  const at::Tensor& state(std::size_t b, std::size_t k) const { return parts_[b].states[k]; }

 private:
  struct Run {  // of neighbours that decay, or do not; padding between them takes part, and stays zero
    Range range;
    bool decay;
    std::vector<ParamSlice> params;
  };
  struct Part {
    at::Tensor master;
    bool is_model = false;  // the parameters themselves
    std::vector<at::Tensor> states;
    std::vector<Run> runs;
  };

  ShardedParams& params_;
  const GradReducer& gradients_;
  const std::shared_ptr<const Optimizer> optimizer_;
  std::vector<Part> parts_;
  std::int64_t steps_ = 0;
};

}  // namespace trireme
