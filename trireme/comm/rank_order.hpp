#pragma once
// Reductions in rank order: the same additions on every rank and every backend, so the same bits.
#include <span>

#include <ATen/core/Tensor.h>

#include "trireme/comm/call.hpp"

namespace trireme {

/// ((x0 + x1) + x2) + ...; avg is done as sum. bf16 and f16 are added in f32 and rounded once.
at::Tensor reduce_in_rank_order(std::span<const at::Tensor> by_rank, Reduce reduce);

}  // namespace trireme
