#pragma once
// The CUDA kernels behind rms_norm, layer_norm, linear, swiglu, expert_rows and rope. Only for the .cpp
// files of kernels/, which check the arguments. A build without CUDA has no kernels: has_*() is false, the
// others throw.
#include <cstdint>

#include <ATen/core/Tensor.h>

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
  at::Tensor dx;
  at::Tensor partial_dweight, partial_dbias;  // for add_up_on_cuda(); of a bias only with a mean
};
/// `dsum` (if defined) is added to dx. With a mean: layer norm, else RMS norm.
NormGradients norm_backward_on_cuda(const at::Tensor& dy, const at::Tensor& dsum, const at::Tensor& x,
                                    const at::Tensor& weight, const at::Tensor& mean_T, const at::Tensor& rstd_T);

/// out [n] of any dtype = (`add`: +=) the sums over dim 0 of partial [m, n], in a fixed order.
void add_up_on_cuda(const at::Tensor& out, const at::Tensor& partial, bool add);

/// The gradient of a weight from its partial sums, by write_gradient(); undefined for one that requires none.
at::Tensor add_up_gradient(const at::Tensor& weight, const at::Tensor& partial);

/// Whether the sums of the columns of this matrix have a kernel.
bool has_column_sums_on_cuda(const at::Tensor& x);
/// out [n] of any dtype = (`add`: +=) the sums of the columns of x [m, n].
void column_sums_on_cuda(const at::Tensor& out, const at::Tensor& x, bool add);

/// gate_up [T, 2F]
bool has_swiglu_on_cuda(const at::Tensor& gate_up);
at::Tensor swiglu_on_cuda(const at::Tensor& gate_up);
at::Tensor swiglu_backward_on_cuda(const at::Tensor& dy, const at::Tensor& gate_up);

/// See expert_rows.hpp; of matrices like x. Undefined weights: ones.
bool has_expert_rows_on_cuda(const at::Tensor& x);
at::Tensor spread_rows_on_cuda(const at::Tensor& x_TD, const at::Tensor& place_Tk);
at::Tensor gather_rows_on_cuda(const at::Tensor& rows_RD, const at::Tensor& place_Tk, const at::Tensor& weights_Tk);
void gather_rows_backward_on_cuda(const at::Tensor& dy_TD, const at::Tensor& rows_RD, const at::Tensor& place_Tk,
                                  const at::Tensor& weights_Tk, const at::Tensor& drows_RD,
                                  const at::Tensor& dweights_Tk);

/// x [T, heads, d]
bool has_rope_on_cuda(const at::Tensor& x);
at::Tensor rope_on_cuda(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, std::int64_t rotated_heads,
                        bool inverse);

/// 90 for 9.0.
int cuda_capability(at::Device device);

}  // namespace trireme::kernels::detail
