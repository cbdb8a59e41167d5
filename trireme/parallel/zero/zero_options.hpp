#pragma once
// ZeRO options: what is sharded, and how it is communicated ([parallelism] and [precision] of the config).
#include <cstdint>
#include <optional>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace trireme {

struct ZeroOptions {
  std::optional<at::Device> device = std::nullopt;  // of the memory for parameters created on `meta`

  bool forward_only = false;  // for evaluations: no memory for gradients, master weights or states; no update()

  int stage = 1;      // 0: nothing is sharded; 1: optimizer states; 2: also gradients; 3: also parameters
  int replicate = 1;  // HSDP: number of groups of ranks that hold the same shards

  double bucket_mb = 25;             // size of a gradient bucket, in the accumulation dtype
  bool overlap = true;               // overlap communication with backward, the update and the next forward
  bool reduce_scatter = true;        // else: all-reduce full buckets and keep the local shard
  bool contiguous_gradients = true;  // else: gradients stay where autograd put them until the end of backward

  // Stage 3, in elements:
  bool reshard_after_forward = true;
  std::int64_t max_live_parameters = 1'000'000'000;  // no prefetch beyond this many gathered elements
  std::int64_t max_reuse_distance = 1'000'000'000;   // a unit reused within this many elements is not freed
  std::int64_t persistence_threshold = 100'000;      // parameters up to this size are never freed

  at::ScalarType accumulate = at::kFloat;  // for gradient accumulation; f64 if the parameters are
  at::ScalarType reduce = at::kFloat;      // for gradient communication
};

}  // namespace trireme
