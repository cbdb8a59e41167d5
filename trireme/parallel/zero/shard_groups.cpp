#include "trireme/parallel/zero/shard_groups.hpp"

#include <vector>

namespace trireme {

ShardGroups shard_groups(const Group& same, int replicas, Mesh& mesh) {
  const int shards = same.size() / replicas, mine = same.rank() / shards;
  std::vector<int> in_shards, in_replicas;
  for (int s = 0; s < shards; ++s) in_shards.push_back(same.world_ranks()[static_cast<std::size_t>(mine * shards + s)]);
  for (int r = 0; r < replicas; ++r)
    in_replicas.push_back(same.world_ranks()[static_cast<std::size_t>(r * shards + same.rank() % shards)]);
  const auto group_of = [&](const std::vector<int>& ranks) {
    return ranks.size() == 1 ? &mesh.group({}) : &mesh.group_of_ranks(ranks);
  };
  return {group_of(in_shards), group_of(in_replicas)};
}

}  // namespace trireme
