#pragma once
// The sharded optimizer: master weights and optimizer states only for this rank's shards.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/optim/optimizer.hpp"
#include "trireme/parallel/zero/grad_reducer.hpp"
#include "trireme/parallel/zero/sharded_params.hpp"

namespace trireme {

/// Parameters by name that are updated differently.
struct ParameterGroup {
  std::vector<std::string> names;  // patterns (base/name_pattern.hpp)
  double lr_factor = 1;            // of the learning rate of the step
  /// Another optimizer, or another weight decay; unset: that of all others.
  std::optional<OptimizerOptions> optimizer = {};
};

struct UpdateOptions {
  OptimizerOptions optimizer{};
  std::vector<ParameterGroup> groups = {};  // a parameter is of the first that names it
  std::function<std::unique_ptr<Optimizer>(const OptimizerOptions&)> make = make_optimizer;
  at::ScalarType master = at::kFloat;  // if equal to the parameters' dtype, there is no separate copy
  at::ScalarType states = at::kFloat;
};

class ShardedOptimizer {
 public:
  ShardedOptimizer(ShardedParams& params, const GradReducer& gradients, std::shared_ptr<const Optimizer> optimizer,
                   const UpdateOptions& options);

  /// Updates this rank's shard of every bucket, in the order in which forward needs them, and all-gathers the buckets
  /// that are kept; with overlap a gather runs during the next update and the next forward.
  void step(double lr, const kernels::GradientFactor& factor);
  /// Reverts the step count, when the factor of the last step was NaN and nothing was updated.
  void forget_step() { --steps_; }

  /// Sets master and model weights, from element `begin` of this rank's shard of bucket b.
  void set_weights(std::size_t b, std::int64_t begin, const at::Tensor& values);

  /// After the master weights and states were set from a checkpoint: the model's weights become the master weights.
  void continue_after(std::int64_t steps);

  std::int64_t steps() const { return steps_; }
  /// None for forwards only.
  const std::vector<std::string>& state_names() const;
  const at::Tensor& master(std::size_t b) const { return parts_[b].master; }
  const at::Tensor& state(std::size_t b, std::size_t k) const { return parts_[b].states[k]; }

 private:
  struct Run {  // adjacent parameters with the same weight decay; padding between them is included, and stays zero
    Range range;
    bool decay;
    std::vector<ParamSlice> params;
  };
  struct Part {
    at::Tensor master;
    bool is_model = false;  // master is the model's own shard, not a copy
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
