#pragma once
// The balancing loss of transformers (load_balancing_loss_func): one product of sums over all layers and tokens.
#include <functional>

#include "trireme/comm/group.hpp"

namespace trireme {

/// Of one microbatch: loss = coefficient x experts x sum over experts of (choices per token) x (mean score), with the
/// choices and scores of all layers. The choices of the last layer are known when backward begins, in which each layer
/// asks for its gradient.
class PooledBalance {
 public:
  /// `world`: all ranks, of which `copies` route the same tokens.
  PooledBalance(double coefficient, std::int64_t top_k, Group& world, int copies)
      : coefficient_(coefficient), top_k_(top_k), world_(world), copies_(copies) {}

  /// The choices and the sums of the scores of a layer's own tokens, once per layer and microbatch.
  void add(const at::Tensor& choices_E, const at::Tensor& scores_E);
  /// The gradient of (loss x tokens of the microbatch) for the score of any token in any layer. Collective when it is
  /// first called; then the loss is reported, summed over the own tokens.
  at::Tensor gradient_E(const std::function<void(const at::Tensor& sum)>& report);

 private:
  const double coefficient_;
  const std::int64_t top_k_;
  Group& world_;
  const int copies_;
  int layers_ = 0;
  at::Tensor choices_E_, scores_E_, gradient_E_;
};

}  // namespace trireme
