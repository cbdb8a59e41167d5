#pragma once
// fp8.hpp and the product of fp8 matrices as CUDA kernels. Only for the .cpp files next to it, which check the
// arguments. A build without CUDA has none: they throw.
#include <string>

#include "trireme/kernels/matmul/fp8.hpp"

namespace trireme::kernels::detail {

std::string why_no_fp8_on_cuda(at::Device device);
/// [1] in f32: the largest |element| of x, which is contiguous. Here and below, of the finite ones.
at::Tensor fp8_largest_on_cuda(const at::Tensor& x);
struct Fp8Largest {
  at::Tensor of_rows, of_columns;  // [m] and [n] for a matrix [m, n]
};
Fp8Largest fp8_largest_of_lines_on_cuda(const at::Tensor& x);
/// [2, max(n, 4)]: the scales for largest [n], and their inverses.
at::Tensor fp8_scales_on_cuda(const at::Tensor& largest, Fp8 format);
/// Writes those of the rows and columns of `out` that are defined, with the scales of `out`.
void to_fp8_on_cuda(const at::Tensor& x, Fp8 format, const Fp8Matrix& out, const at::Tensor& largest);
struct Fp8Operand {
  const at::Tensor &values, &scale;
};
/// out [m, n] = (`add`: +=) a [m, k] b [n, k]^T + bias [n]
void fp8_product_on_cuda(const at::Tensor& out, const Fp8Operand& a, const Fp8Operand& b, const at::Tensor& bias,
                         bool add, bool fast);

}  // namespace trireme::kernels::detail
