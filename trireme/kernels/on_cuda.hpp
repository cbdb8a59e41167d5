#pragma once
// The CUDA kernels behind rms_norm, layer_norm, linear, swiglu, rope and block_squares. Only for the .cpp files of this
// folder, which check the arguments. A build without CUDA has no kernels: has_*() is false, the others throw.
#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "trireme/kernels/block_squares.hpp"

namespace trireme::kernels::detail {

/// Whether the norm of rows of this tensor has a kernel: on a GPU, rows aligned to 16 bytes and not too long.
bool has_norm_on_cuda(const at::Tensor& x);

struct NormResult {
  at::Tensor sum;                // x + residual, rounded; x without one
  at::Tensor y, mean_T, rstd_T;  // mean: only of a layer norm
};
/// Of x + residual (if defined). With a bias: layer norm, else RMS norm.
NormResult norm_on_cuda(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                        const at::Tensor& bias, double eps);

struct NormGradients {
  at::Tensor dx, dweight, dbias;
};
/// `dsum` (if defined) is added to dx. With a mean: layer norm, else RMS norm.
NormGradients norm_backward_on_cuda(const at::Tensor& dy, const at::Tensor& dsum, const at::Tensor& x,
                                    const at::Tensor& weight, const at::Tensor& mean_T, const at::Tensor& rstd_T);

/// Whether the sums of the columns of this matrix have a kernel.
bool has_column_sums_on_cuda(const at::Tensor& x);
at::Tensor column_sums_on_cuda(const at::Tensor& x);

/// gate_up [T, 2F]
bool has_swiglu_on_cuda(const at::Tensor& gate_up);
at::Tensor swiglu_on_cuda(const at::Tensor& gate_up);
at::Tensor swiglu_backward_on_cuda(const at::Tensor& dy, const at::Tensor& gate_up);

/// x [T, heads, d]
bool has_rope_on_cuda(const at::Tensor& x);
at::Tensor rope_on_cuda(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, std::int64_t rotated_heads,
                        bool inverse);

void block_squares_on_cuda(std::span<const SquaresRun> runs, const at::Tensor& out);

}  // namespace trireme::kernels::detail
