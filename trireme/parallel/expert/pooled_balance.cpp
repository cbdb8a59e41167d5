#include "trireme/parallel/expert/pooled_balance.hpp"

#include "trireme/base/error.hpp"

namespace trireme {

void PooledBalance::add(const at::Tensor& choices_E, const at::Tensor& scores_E) {
  require(!gradient_E_.defined(), "a layer's choices after backward has begun");
  choices_E_ = layers_ == 0 ? choices_E : choices_E_ + choices_E;
  scores_E_ = layers_ == 0 ? scores_E : scores_E_ + scores_E;
  ++layers_;
}

at::Tensor PooledBalance::gradient_E(const std::function<void(const at::Tensor& sum)>& report) {
  if (gradient_E_.defined()) return gradient_E_;
  // Every rank counts each of its tokens, so that copies count alike in both sums.
  const at::Tensor choices_E = world_.all_reduce(choices_E_).wait().to(scores_E_.scalar_type());
  const at::Tensor per_token_E = choices_E * static_cast<double>(top_k_) / choices_E.sum();
  gradient_E_ = per_token_E * (coefficient_ * static_cast<double>(choices_E.size(0)) / layers_);
  if (report) report((gradient_E_ * scores_E_).sum() / copies_);
  return gradient_E_;
}

}  // namespace trireme
