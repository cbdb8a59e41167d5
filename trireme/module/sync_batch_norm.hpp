#pragma once
// Batch norm by the samples of all ranks.
#include <torch/nn/cloneable.h>
#include <torch/nn/options/batchnorm.h>
#include <torch/nn/pimpl.h>

#include "trireme/comm/group.hpp"
#include "trireme/module/module_tensors.hpp"

namespace trireme {

/// torch::nn::BatchNorm1d, 2d or 3d whose mean and variance are those of the samples of all ranks of a group: use it in
/// place of them. data_parallel(), fully_shard() and Pipeline set the group; before that, and in eval mode, it is an
/// ordinary batch norm. Parameters and buffers have the same names, so saved modules fit. Ranks may have different
/// numbers of samples. Collective in training: two small all-reduces in forward, two in backward. ConfigError for a
/// batch with one value per feature, which has no variance.
class SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  explicit SyncBatchNormImpl(std::int64_t num_features)
      : SyncBatchNormImpl(torch::nn::BatchNormOptions(num_features)) {}
  explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& options);
  void reset() override;

  /// x [samples, features, ...].
  at::Tensor forward(const at::Tensor& x);

  /// nullptr: of this rank alone. It must outlive the calls and their graphs.
  void set_group(Group* group, const void* owner = nullptr) {
    group_ = group;
    owner_ = owner;
    context_ = ContextGuard("SyncBatchNorm");
  }
  /// Unless somebody else has set it since.
  void clear_group(const void* owner) {
    if (owner_ == owner) set_group(nullptr);
  }
  /// false: this rank only takes part; its samples are normalised by those of the others, and do not count.
  void set_counted(bool counted) { counted_ = counted; }

  torch::nn::BatchNormOptions options;
  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  at::Tensor sum_over_ranks(const at::Tensor& x) const;

  Group* group_ = nullptr;
  const void* owner_ = nullptr;            // who has set it
  ContextGuard context_{"SyncBatchNorm"};  // of the group
  bool counted_ = true;
};
TORCH_MODULE(SyncBatchNorm);

/// For all SyncBatchNorms of a module.
void set_batch_norm_group(torch::nn::Module& module, Group* group, const void* owner = nullptr);
void clear_batch_norm_group(torch::nn::Module& module, const void* owner);
void set_batch_norm_counted(torch::nn::Module& module, bool counted);

}  // namespace trireme
