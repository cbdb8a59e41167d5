#pragma once
// Sums of squares of fixed-size blocks, for gradient norms that are bitwise equal on every rank and sharding.
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trireme::kernels {

inline constexpr std::int64_t kSquaresBlock = 1024;

/// out[k] += the sum of squares of the elements of x in block k, where x[0] is element `phase` of block 0. x is flat
/// and contiguous, of any float dtype; out is f64, one number per block that x overlaps. The elements of a block are
/// added in a fixed order, for any number of threads.
void add_block_squares(const at::Tensor& x, std::int64_t phase, const at::Tensor& out);

/// The sum of all elements of a flat f64 tensor, in order on the CPU: 0-dim.
at::Tensor sum_in_order(const at::Tensor& x);

}  // namespace trireme::kernels
