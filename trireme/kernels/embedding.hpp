#pragma once
// Rows of a table.
#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// y [T, D] = weight [V, D] at the rows ids [T] (i64, each of 0 ... V - 1: not checked here).
///   backward   dweight[ids] += dy, to its place (gradient_place.hpp); the same bits each time, on the CPU and on CUDA
at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids);

}  // namespace trireme::kernels
