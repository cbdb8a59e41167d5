#pragma once
// block_squares as a CUDA kernel. Only for block_squares.cpp.
#include "trireme/kernels/optimizer/block_squares.hpp"

namespace trireme::kernels::detail {

void block_squares_on_cuda(std::span<const SquaresRun> runs, const at::Tensor& out);

}  // namespace trireme::kernels::detail
