#pragma once
// Sums of squares of fixed-size blocks, for gradient norms that are bitwise equal on every rank and sharding.
#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

namespace trireme::kernels {

inline constexpr std::int64_t kSquaresBlock = 1024;

/// Elements of consecutive blocks: x[0] is element `phase` of block `block`. Flat and contiguous, of any float dtype.
struct SquaresRun {
  at::Tensor x;
  std::int64_t phase = 0, block = 0;
};

/// out[k] += the sum of squares of the elements in block k, for all runs; out is f64. The elements of a block are added
/// in a fixed order, for any number of threads.
void add_block_squares(std::span<const SquaresRun> runs, const at::Tensor& out);

/// The sum of all elements of a flat f64 tensor, in order on the CPU: 0-dim.
at::Tensor sum_in_order(const at::Tensor& x);

}  // namespace trireme::kernels
