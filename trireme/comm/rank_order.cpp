#include "trireme/comm/rank_order.hpp"

#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

namespace trireme {

at::Tensor reduce_in_rank_order(std::span<const at::Tensor> by_rank, Reduce reduce) {
  const at::NoGradGuard no_grad;
  const at::ScalarType dtype = by_rank.front().scalar_type();
  const bool adds = reduce == Reduce::sum || reduce == Reduce::avg;
  const bool in_f32 = adds && (dtype == at::kBFloat16 || dtype == at::kHalf);
  at::Tensor result = in_f32 ? by_rank.front().to(at::kFloat) : by_rank.front().clone();
  for (const at::Tensor& next : by_rank.subspan(1)) {
    if (adds)
      result.add_(next);
    else
      result = reduce == Reduce::max ? at::maximum(result, next) : at::minimum(result, next);
  }
  return in_f32 ? result.to(dtype) : result;
}

}  // namespace trireme
