#pragma once
// Deterministic reductions in rank order: the same additions on every rank and backend, hence bitwise equal results.
#include <span>

#include <ATen/core/Tensor.h>

#include "trireme/comm/calls/call.hpp"

namespace trireme {

/// ((x0 + x1) + x2) + ...; avg is computed as sum. bf16 and f16 are accumulated in f32 and rounded once.
at::Tensor reduce_in_rank_order(std::span<const at::Tensor> by_rank, Reduce reduce);

}  // namespace trireme
