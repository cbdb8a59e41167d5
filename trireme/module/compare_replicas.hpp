#pragma once
// Do the ranks that train copies of a module still have the same one?
#include <string>

#include "trireme/module/module_checkpoint.hpp"

namespace trireme {

struct CompareReplicasOptions {
  /// With BufferSync::local every rank has buffers of its own: then without them.
  bool buffers = true;
  std::string when = {};  // for the message: "step 400"
};

/// Hashes every parameter and buffer on all ranks, and compares those that several ranks hold: with data_parallel(),
/// with fully_shard() and Sharding::no_shard or `replicate`, and on a mesh over the ranks that see other samples.
/// Collective; reads all of the module, so not after each step of a large one. ComparisonFailed (exit code 1), on all
/// ranks, names the tensors that differ and the ranks that hold other bits than most; ConfigError for a module of which
/// no part is on two ranks, or whose ranks are of different modules.
///
///   compare_replicas({net, group}, {.when = "epoch 3"});
void compare_replicas(const CheckpointedModule& what, const CompareReplicasOptions& options = {});

}  // namespace trireme
