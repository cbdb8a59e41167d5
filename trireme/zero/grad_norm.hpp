#pragma once
// The norm of all gradients, every element counted once, whoever keeps it.
#include <string>
#include <vector>

#include "trireme/zero/grad_reducer.hpp"

namespace trireme {

/// The squares of one partition. They are added up in blocks of each parameter (Note [Blocks of a flat buffer]), and
/// the blocks' sums in one order: the norm is bitwise the same for every dp and every stage. Elements that several
/// ranks of the model hold are counted by the first of them; padding of a parameter or a bucket by none.
class GradNorm {
 public:
  explicit GradNorm(const Partition& partition);

  /// The sum of squares over all ranks of this stage: one element, f64, on the gradients' device; nothing waits for it.
  /// A call of all ranks.
  at::Tensor sum_of_squares(const GradReducer& gradients);

  /// After sum_of_squares(): the parameters of this rank's model part whose gradient is not finite, in the order of
  /// backward.
  std::vector<std::string> not_finite() const;

 private:
  struct Run {  // elements of one parameter, one after the other in this rank's part of a bucket
    std::size_t bucket;
    std::int64_t offset, numel;
    std::int64_t block, phase;  // where they lie among all blocks
  };

  const Partition& partition_;
  std::vector<Run> runs_;
  std::vector<std::int64_t> first_block_;  // by item, and the number of all at the end
  at::Tensor blocks_;
};

/// What gradients are multiplied by before the update: 1 / loss_scale, and what brings their norm down to max_norm
/// where it is larger (0: never), as PyTorch's clip_grad_norm_ has it. NaN where `norm`, of the scaled gradients, is
/// not finite.
at::Tensor update_factor(const at::Tensor& norm, double max_norm, double loss_scale);

}  // namespace trireme
