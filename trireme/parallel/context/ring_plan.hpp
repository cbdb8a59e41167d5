#pragma once
// Which pieces of a rank's queries attend to which pieces of another rank's keys, for fused kernels of variable
// lengths.
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/kernels/attention/attention_pieces.hpp"
#include "trireme/layout/context_split.hpp"

namespace trireme {

/// One launch: the rows [sample * length + index] of queries and keys, in the order of the pieces.
struct RingLaunch {
  at::Tensor query_rows, key_rows;  // i64
  kernels::AttentionPieces pieces;
};

/// The launches of a rank, by the rank whose keys they take.
using RingPlan = std::vector<std::vector<RingLaunch>>;

/// The plans of one microbatch: made by the first layer that needs one, used by all others with the same window, and by
/// their backward passes.
class RingPlans {
 public:
  /// Of each sample: where its documents begin, ascending from 0.
  explicit RingPlans(std::vector<std::vector<std::int64_t>> document_begins)
      : document_begins_(std::move(document_begins)) {}

  std::shared_ptr<const RingPlan> plan(CpSplit order, std::int64_t whole_length, int ranks, int rank,
                                       std::int64_t window, at::Device device);

 private:
  const std::vector<std::vector<std::int64_t>> document_begins_;
  std::map<std::int64_t, std::shared_ptr<const RingPlan>> by_window_;
};

}  // namespace trireme
