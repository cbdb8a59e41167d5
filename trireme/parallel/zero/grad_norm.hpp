#pragma once
// The global gradient norm: every element is counted exactly once, on whichever rank owns it.
#include <string>
#include <vector>

#include "trireme/parallel/zero/grad_reducer.hpp"

namespace trireme {

/// The norm over one partition. Squares are summed per block of each parameter (Note [Blocks of a flat buffer]), then
/// the block sums in a fixed order. An element that several ranks hold as model-parallel replicas is counted by the
/// first of them only; padding of parameters and buckets is not counted.
///   by default              a rank has the blocks of its shard, and one number is summed over the ranks
///   comm.deterministic      every rank has the blocks of all shards, one f64 per 1,024 parameters of the model part:
///                           the norm is bitwise the same for every dp and every stage
class GradNorm {
 public:
  explicit GradNorm(const Partition& partition);

  /// The sum of squares over all ranks of this pipeline stage: one f64 element on the device of the gradients, without
  /// host synchronization. Collective: all ranks call it.
  at::Tensor sum_of_squares(const GradReducer& gradients);

  /// After sum_of_squares(): the parameters of this rank's model part with non-finite gradients, in backward order.
  /// Collective.
  std::vector<std::string> not_finite() const;

 private:
  struct Run {  // a contiguous range of one parameter within this rank's shard of a bucket
    std::size_t bucket;
    std::int64_t offset, numel;
    std::int64_t block, phase;  // index of its first block in blocks_, and its offset in that block
  };
  void number_own_blocks();

  const Partition& partition_;
  std::vector<Run> runs_;
  const bool has_all_blocks_;               // comm.deterministic
  std::vector<std::int64_t> first_block_;   // by item, of all blocks; the last entry is their number
  std::vector<std::size_t> item_of_block_;  // of the own blocks, unless it has all
  at::Tensor blocks_;
};

/// The factor that gradients are multiplied by before the update: 1 / loss_scale, times max_norm / norm if the norm
/// exceeds max_norm (0: no clipping), as in PyTorch's clip_grad_norm_. NaN if `norm`, that of the scaled gradients, is
/// not finite or, with the loss scale divided out, above `skip_above`.
at::Tensor update_factor(const at::Tensor& norm, double max_norm, double loss_scale, double skip_above);

}  // namespace trireme
