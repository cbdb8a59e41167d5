#pragma once
// Linear layers of several experts in one call: each multiplies its own rows.
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// y [T, N]: the first rows[0] rows of x [T, K] times weight[0]^T, the next rows[1] times weight[1]^T, ... of weight
/// [E, N, K]. The rows add up to T; an expert may have none.
///   backward   dx = dy weight[e], dweight[e] = dy^T x over the rows of expert e, zero if it has none
/// dweight is written to its place (gradient_place.hpp), also if no expert has a row: all ranks reduce it alike. Saved
/// for backward: x (if weight requires a gradient) and weight.
at::Tensor grouped_linear(const at::Tensor& x, const at::Tensor& weight_ENK, const std::vector<std::int64_t>& rows);

}  // namespace trireme::kernels
