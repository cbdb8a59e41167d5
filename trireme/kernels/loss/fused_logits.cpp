#include "trireme/kernels/loss/fused_logits.hpp"

#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

namespace trireme::kernels {

at::Tensor rebased(const at::Tensor& stats_4C, const at::Tensor& max_C, const at::Tensor& targets_C, std::int64_t first,
                   std::int64_t columns) {
  const at::Tensor here_C = targets_C.ge(first).logical_and_(targets_C.lt(first + columns));
  const at::Tensor target_C = at::where(here_C, stats_4C[2] - max_C, at::zeros_like(max_C));
  return at::stack(
      {stats_4C[1] * (stats_4C[0] - max_C).exp_(), target_C, stats_4C[3] - max_C * static_cast<double>(columns)});
}

}  // namespace trireme::kernels
