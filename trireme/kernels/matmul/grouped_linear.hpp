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

/// Whether the numbers of rows may stay on the device: a GPU with a grouped product, bfloat16, and sizes that it takes
/// (multiples of 8).
bool takes_rows_on_device(const at::Tensor& x, const at::Tensor& weight_ENK);
/// Whether the weights of experts with these sizes, in bfloat16, are multiplied without a wait of the host.
bool has_products_of_rows_on_device(at::Device device, std::int64_t features, std::int64_t hidden);
/// The same with `ends_E`, i32 on the device of x: the row after the last one of each expert. The host does not wait.
/// Gradients of weights are rounded to bfloat16 once per call.
at::Tensor grouped_linear(const at::Tensor& x, const at::Tensor& weight_ENK, const at::Tensor& ends_E);

}  // namespace trireme::kernels
