#pragma once
// What the user may choose about who keeps which parameter, gradient and state: [parallelism] and [precision].
#include <cstdint>

#include <c10/core/ScalarType.h>

namespace trireme {

struct ZeroOptions {
  int stage = 1;      // 0: everybody keeps everything; 1: states are cut; 2: and gradients; 3: and parameters
  int replicate = 1;  // HSDP: so many groups of ranks keep the same parts

  double bucket_mb = 25;             // of gradients, in the dtype they are added up in
  bool overlap = true;               // communicate while backward, the update and the next forward run
  bool reduce_scatter = true;        // else: sum whole buckets, keep the own part
  bool contiguous_gradients = true;  // else: gradients stay where autograd put them until backward is over

  // Stage 3, in elements:
  bool reshard_after_forward = true;
  std::int64_t max_live_parameters = 1'000'000'000;  // nothing is fetched ahead beyond it
  std::int64_t max_reuse_distance = 1'000'000'000;   // what is used again before so many others is not freed
  std::int64_t persistence_threshold = 100'000;      // parameters up to this size are never freed

  at::ScalarType accumulate = at::kFloat;  // gradients over microbatches; f64 where parameters are
  at::ScalarType reduce = at::kFloat;      // gradients on the wire
};

}  // namespace trireme
