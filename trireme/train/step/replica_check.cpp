#include "trireme/train/step/replica_check.hpp"

#include <span>

#include "trireme/base/error.hpp"
#include "trireme/comm/group_text.hpp"
#include "trireme/files/xxh3.hpp"

namespace trireme {

void ReplicaCheck::add(const std::vector<StateSlice>& slices) {
  for (const StateSlice& slice : slices) {
    const at::Tensor host = slice.values.detach().contiguous().cpu();
    const std::span bytes(static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes());
    parts_.push_back(
        {.what = text(slice.name, " (", slice.kind, ") ", str(slice.box)), .hash = files::str(files::xxh3(bytes))});
  }
}

void ReplicaCheck::compare(World& world, std::int64_t step) const {
  const std::vector<std::string> of_ranks = gather_texts(world.control(), lines_of(parts_));
  std::string wrong;
  if (world.rank() == 0) {
    std::vector<std::vector<HeldPart>> ranks;
    for (const std::string& each : of_ranks) ranks.push_back(held_parts_in(each));
    wrong = differences_of_replicas(ranks);
  }
  wrong = broadcast_text(world.control(), wrong);
  require<ComparisonFailed>(
      wrong.empty(), "step ", step, ": ", wrong,
      "\n  replicas must be identical bit by bit: since the last comparison the memory, a kernel or "
      "the communication of a rank was faulty",
      "\n  fix: resume from a checkpoint before this step; if it is the same rank again, exclude "
      "its host");
}

}  // namespace trireme
