#pragma once
// parallel_matmul() with 8-bit operands.
#include "trireme/nn/parallel_matmul.hpp"

namespace trireme {

/// As parallel_matmul(): x and the weight are rounded to e4m3, the gradient of the output to e5m2, with a scale for
/// each tensor; results have the dtype of x. What is stored of x for backward is its rounded form, if it
/// need not be gathered or recomputed. ConfigError for sizes that are no multiples of 16.
at::Tensor fp8_matmul(const at::Tensor& x, const at::Tensor& weight_NK, const at::Tensor& bias_N, Input input,
                      Group& tp, const MaybeRebuild& rebuild = {});

}  // namespace trireme
