#pragma once
// Embedding lookup.
#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// y [T, D] = rows ids [T] of weight [V, D] (i64, each in 0 ... V - 1: not checked here).
///   backward   dweight[ids] += dy, written to its place (gradient_place.hpp); deterministic, on the CPU and on CUDA
at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids);

}  // namespace trireme::kernels
