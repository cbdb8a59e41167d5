#pragma once
// Sums of squares of a fixed number of elements each: what a gradient's norm is made of, the same bits whoever makes it.
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trireme::kernels {

inline constexpr std::int64_t kSquaresBlock = 1024;

/// out[k] += the sum of squares of those elements of x that lie in block k, where x[0] is element `phase` of block 0.
/// x is flat and contiguous, of any float dtype; out is f64, one number for each block that x touches. A block's
/// elements are added in one order, with any number of threads.
void add_block_squares(const at::Tensor& x, std::int64_t phase, const at::Tensor& out);

/// The sum of all elements of a flat f64 tensor, from the first to the last on the CPU: 0-dim.
at::Tensor sum_in_order(const at::Tensor& x);

}  // namespace trireme::kernels
