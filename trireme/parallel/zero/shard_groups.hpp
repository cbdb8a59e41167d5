#pragma once
// Which ranks share the shards of a tensor, and which have the same shard (HSDP).
#include "trireme/comm/mesh.hpp"

namespace trireme {

struct ShardGroups {
  Group* shards = nullptr;    // each has another shard
  Group* replicas = nullptr;  // each has the same one
};

/// The ranks of `same`, which hold the same parameters, as `replicas` groups of neighbours, each with all shards.
/// `replicas` divides their number.
ShardGroups shard_groups(const Group& same, int replicas, Mesh& mesh);

}  // namespace trireme
