#pragma once
// Matrix products by cuBLASLt, with what it can do in the same kernel. Only for the .cpp files of this folder, in a
// build with CUDA.
#include <ATen/core/Tensor.h>
#include <cublasLt.h>

namespace trireme::kernels::detail {

/// out [m, n] = op(a) [m, k] op(b) [k, n] + c, all in rows. cuBLASLt has columns: it computes the transposed, b^T a^T.
struct LtProduct {
  at::Tensor out, a, b;
  bool transposed_a = false, transposed_b = false;
  at::Tensor c = {};  // may be `out`
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  at::Tensor bias = {};                                // added or written
  at::Tensor before = {};                              // GELU's input, written or read
  const float *scale_a = nullptr, *scale_b = nullptr;  // of fp8: on the device; they multiply the result
  bool fast = false;                                   // sums of fp8 with fewer bits
};

/// Enqueues it. The algorithm is the one that cuBLASLt expects to be the fastest for such operands, until
/// tune_lt_products() has measured.
void run_lt_product(const LtProduct& product);

/// Measures the algorithms of all products that have run on this device since the last call, and keeps the fastest.
/// Returns how many products those were.
int tune_lt_products(at::Device device);

}  // namespace trireme::kernels::detail
