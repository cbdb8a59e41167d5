#include "trireme/module/sync_batch_norm.hpp"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/differentiable.hpp"

namespace trireme {

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& its_options) : options(its_options) { reset(); }

void SyncBatchNormImpl::reset() {
  const std::int64_t features = options.num_features();
  if (options.affine()) {
    weight = register_parameter("weight", at::ones({features}));
    bias = register_parameter("bias", at::zeros({features}));
  } else {
    weight = register_parameter("weight", at::Tensor(), /*requires_grad=*/false);
    bias = register_parameter("bias", at::Tensor(), /*requires_grad=*/false);
  }
  if (!options.track_running_stats()) return;
  running_mean = register_buffer("running_mean", at::zeros({features}));
  running_var = register_buffer("running_var", at::ones({features}));
  num_batches_tracked = register_buffer("num_batches_tracked", at::tensor(std::int64_t{0}));
}

/// The sum is used by the losses of all ranks, so its gradient is summed, too.
at::Tensor SyncBatchNormImpl::sum_over_ranks(const at::Tensor& x) const {
  return differentiable::sum_grads(differentiable::all_reduce(x, *group_), *group_);
}

namespace {

/// A variance needs two values, as in torch's batch norms.
void require_variance(double values, at::IntArrayRef sizes) {
  require<ConfigError>(values > 1, "SyncBatchNorm: ", values, values == 1 ? " value" : " values",
                       " per feature in training, in a batch of sizes ", sizes,
                       " on this rank: a variance needs at least 2\n  fix: larger batches, or eval()");
}

}  // namespace

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& x) {
  require<ConfigError>(x.dim() >= 2 && x.size(1) == options.num_features(), "SyncBatchNorm of ", options.num_features(),
                       " features: an input of sizes ", x.sizes(), "; must be [samples, features, ...]");
  const bool from_batch = is_training() || !running_mean.defined();
  if (group_) context_.check();
  const bool alone = !group_ || group_->size() == 1;
  const auto own = static_cast<double>(counted_ || alone ? x.numel() / x.size(1) : 0);
  if (from_batch && alone) require_variance(own, x.sizes());
  double momentum = options.momentum().value_or(0);
  if (is_training() && num_batches_tracked.defined()) {
    num_batches_tracked.add_(1);
    if (!options.momentum()) momentum = 1 / num_batches_tracked.item<double>();  // a plain mean over all batches
  }
  if (!from_batch || alone)
    return at::batch_norm(x, weight, bias, running_mean, running_var, from_batch, momentum, options.eps(),
                          at::globalContext().userEnabledCuDNN());

  at::DimVector dims, shape(static_cast<std::size_t>(x.dim()), 1);
  for (std::int64_t d = 0; d < x.dim(); ++d)
    if (d != 1) dims.push_back(d);
  shape[1] = x.size(1);
  const at::ScalarType wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor in = x.to(wide);
  const double counted = counted_ ? 1 : 0;
  const at::Tensor sums =
      sum_over_ranks(at::cat({in.sum(dims) * counted, at::full({1}, own, in.options().requires_grad(false))}));
  const at::Tensor count = sums.narrow(0, x.size(1), 1).detach();
  if (own <= 1) require_variance(count.item<double>(), x.sizes());  // else there is no need to wait for a GPU
  const at::Tensor mean = sums.narrow(0, 0, x.size(1)) / count;
  const at::Tensor centered = in - mean.view(shape);
  const at::Tensor variance = sum_over_ranks(centered.square().sum(dims) * counted) / count;
  if (is_training() && running_mean.defined()) {
    const at::NoGradGuard no_grad;
    running_mean.mul_(1 - momentum).add_(mean.detach() * momentum);
    running_var.mul_(1 - momentum).add_(variance.detach() * (count / (count - 1)) * momentum);
  }
  at::Tensor y = centered * (variance + options.eps()).rsqrt().view(shape);
  if (weight.defined()) y = y * weight.view(shape) + bias.view(shape);
  return y.to(x.scalar_type());
}

void set_batch_norm_group(torch::nn::Module& module, Group* group, const void* owner) {
  if (auto* norm = dynamic_cast<SyncBatchNormImpl*>(&module)) norm->set_group(group, owner);
  for (const auto& child : module.children()) set_batch_norm_group(*child, group, owner);
}

void clear_batch_norm_group(torch::nn::Module& module, const void* owner) {
  if (auto* norm = dynamic_cast<SyncBatchNormImpl*>(&module)) norm->clear_group(owner);
  for (const auto& child : module.children()) clear_batch_norm_group(*child, owner);
}

void set_batch_norm_counted(torch::nn::Module& module, bool counted) {
  if (auto* norm = dynamic_cast<SyncBatchNormImpl*>(&module)) norm->set_counted(counted);
  for (const auto& child : module.children()) set_batch_norm_counted(*child, counted);
}

}  // namespace trireme
