#pragma once
// Matrix products of 8-bit floats: a tensor, or each of its rows, is scaled so that its largest element fits, and
// rounded to e4m3 (3 bits of mantissa, up to 448) or e5m2 (2 bits, up to 57,344, for gradients). Scales are powers of
// two, so scaling itself does not round, and ranks that see different parts of a tensor round its elements alike.
#include <string>

#include <ATen/core/Tensor.h>

namespace trireme::kernels {

enum class Fp8 { e4m3, e5m2 };

/// The largest number of a format.
constexpr double largest_of_format(Fp8 format) { return format == Fp8::e4m3 ? 448 : 57'344; }

/// Why this device has no products of fp8, or "". (On a CPU they are emulated, for tests.)
std::string why_no_fp8(at::Device device);

enum class Fp8Scaling { tensor, row };

/// The scale of a tensor: [2, 4] in f32 on its device. The first number of row 0 is the factor before rounding, that of
/// row 1 its inverse: cuBLASLt reads it at a multiple of 16 bytes.
at::Tensor fp8_scale(const at::Tensor& x, Fp8 format);

/// Which layouts of the rounded matrix are needed: products take both operands with the inner dim contiguous.
enum class Fp8Layout { rows, columns, both };

struct Fp8Matrix {
  at::Tensor rows;          // [m, n], if asked for
  at::Tensor columns;       // [n, m], the transposed, if asked for
  at::Tensor scale;         // of `rows`: as of fp8_scale(), or [2, m] with a scale for each row
  at::Tensor column_scale;  // of `columns`: the same, or [2, n]
};

struct Fp8Options {
  Fp8Scaling scaling = Fp8Scaling::tensor;
  at::Tensor scale = {};    // of a tensor, known before; undefined: that of x
  at::Tensor largest = {};  // [1] in f32, if defined: becomes the largest |element| that it has seen
};

/// x [m, n], contiguous, of f32, bf16 or f16, rounded to the nearest after scaling; beyond the largest number it
/// becomes that number; NaN stays NaN, and infinity becomes NaN.
Fp8Matrix to_fp8(const at::Tensor& x, Fp8 format, Fp8Layout layout, const Fp8Options& options = {});

/// Whether a matrix has fp8 products: its sizes are multiples of 16, as GPUs want them.
bool has_fp8_sizes(const at::Tensor& x);

/// [m, n] = a [m, k] b [n, k]^T + bias [n] (may be undefined), of fp8 operands with their scales, in `dtype`.
/// `fast`: sums with fewer bits (fit for forward). Scales of rows: b is e4m3, and a GPU rounds the result to bf16.
at::Tensor fp8_matmul_nt(const at::Tensor& a, const at::Tensor& scale_a, const at::Tensor& b, const at::Tensor& scale_b,
                         at::ScalarType dtype, const at::Tensor& bias, bool fast);
/// out [m, n], f32 or bf16 = (`add`: +=) a [m, k] b [n, k]^T.
void fp8_matmul_nt_out(const at::Tensor& out, const at::Tensor& a, const at::Tensor& scale_a, const at::Tensor& b,
                       const at::Tensor& scale_b, bool add);

}  // namespace trireme::kernels
