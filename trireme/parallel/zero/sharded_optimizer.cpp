#include "trireme/parallel/zero/sharded_optimizer.hpp"

#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/base/memory_kind.hpp"

namespace trireme {

ShardedOptimizer::ShardedOptimizer(ShardedParams& params, const GradReducer& gradients,
                                   std::shared_ptr<const Optimizer> optimizer, const UpdateOptions& options)
    : params_(params), gradients_(gradients), optimizer_(std::move(optimizer)) {
  const Partition& partition = params.partition();
  const at::ScalarType dtype = partition.dtype();
  const bool forward_only = partition.options().forward_only;
  require<ConfigError>(forward_only || ((options.master == at::kDouble) == (dtype == at::kDouble) &&
                                        (options.master == at::kDouble || options.master == at::kFloat)),
                       "precision.master = ", options.master, " beside parameters of ", dtype,
                       ": must be float32, or float64 where they are");
  for (std::size_t b = 0; b < partition.num_buckets(); ++b) {
    const at::Tensor shard = params.shard(b);
    Part part;
    part.is_model = forward_only || options.master == dtype;
    if (part.is_model) {
      part.master = shard;
    } else {
      const MemoryScope master(MemoryKind::master);
      part.master = shard.to(options.master);
    }
    const MemoryScope states(MemoryKind::states);
    for (std::size_t k = 0; k < state_names().size(); ++k)
      part.states.push_back(at::zeros({shard.numel()}, shard.options().dtype(options.states)));
    for (const FlatPiece& piece : partition.own_pieces(b)) {
      const Param& param = partition.params()[piece.item];
      const bool decay = is_decayed(param.name, options.optimizer);
      const Range range{piece.offset, piece.offset + piece.of_item.size()};
      if (part.runs.empty() || part.runs.back().decay != decay) part.runs.push_back({range, decay, {}});
      Run& run = part.runs.back();
      run.range.end = range.end;
      run.params.push_back({param.name, param.value.sizes().vec(), piece.of_item, range.begin - run.range.begin});
    }
    parts_.push_back(std::move(part));
  }
}

const std::vector<std::string>& ShardedOptimizer::state_names() const {
  static const std::vector<std::string> none;
  return params_.partition().options().forward_only ? none : optimizer_->state_names();
}

void ShardedOptimizer::set_weights(std::size_t b, std::int64_t begin, const at::Tensor& values) {
  const Part& part = parts_[b];
  const at::Tensor master = part.master.narrow(0, begin, values.numel());
  master.copy_(values);
  if (!part.is_model) params_.shard(b).narrow(0, begin, values.numel()).copy_(master);
}

void ShardedOptimizer::continue_after(std::int64_t steps) {
  const at::NoGradGuard no_grad;
  steps_ = steps;
  for (std::size_t b = 0; b < parts_.size(); ++b)
    if (!parts_[b].is_model) params_.shard(b).copy_(parts_[b].master);
}

void ShardedOptimizer::step(double lr, const kernels::GradientFactor& factor) {
  const at::NoGradGuard no_grad;
  ++steps_;  // of frozen parameters, too: all parts of a model count alike
  if (params_.partition().options().forward_only) return;
  for (std::size_t b = parts_.size(); b-- > 0;) {  // buckets are in backward order
    const Part& part = parts_[b];
    const at::Tensor model = params_.shard(b), gradient = gradients_.shard(b);
    std::vector<UpdateSlice> slices;
    for (const Run& run : part.runs) {
      const auto slice = [&](const at::Tensor& x) { return x.narrow(0, run.range.begin, run.range.size()); };
      slices.push_back({.values = {slice(part.master), slice(gradient), part.is_model ? at::Tensor() : slice(model)},
                        .states = {},
                        .params = run.params,
                        .decay = run.decay});
      for (const at::Tensor& state : part.states) slices.back().states.push_back(slice(state));
    }
    optimizer_->step(slices, lr, steps_, factor);
    params_.gather_kept(b);
  }
}

}  // namespace trireme
