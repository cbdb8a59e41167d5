#pragma once
// Sets weights and optimizer states from a checkpoint of any layout: each rank reads only the slices that it needs.
#include <string>
#include <vector>

#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/parallel/zero/saved_state.hpp"

namespace trireme {

struct LoadOptions {
  bool states = true;              // false: only the weights
  bool one_replica_reads = false;  // of ranks with the same shards: spread_to_replicas() must follow
};

/// Every difference between the tensors of a checkpoint and those of the model: missing, of another shape, of no use.
std::vector<std::string> tensor_differences(const checkpoint::Manifest& manifest, const Zero& zero,
                                            const LoadOptions& options = {});

/// Sets what this rank holds, and nothing else: collective calls follow in state_is_loaded(). Every slice that is read
/// is verified. CheckpointError lists all differences, or names the slice that is damaged; then some values are set.
void load_state(const checkpoint::Reader& reader, const Zero& zero, const LoadOptions& options = {});

}  // namespace trireme
