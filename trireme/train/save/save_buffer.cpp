#include "trireme/train/save/save_buffer.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/base/host_memory.hpp"
#include "trireme/base/human.hpp"
#include "trireme/checkpoint/format/block_pool.hpp"

namespace trireme {

SaveBuffer save_buffer(const Config& config, double state, int ranks_of_host) {
  constexpr double kShare = 0.5;  // of what is free: the run needs memory too
  const double free = kShare * host_memory().available / ranks_of_host;
  const double given = config.checkpoint.buffer_mb * 1e6;
  SaveBuffer buffer{.bytes = given > 0 ? given : std::min(state + 2.0 * checkpoint::BlockPool::kBlockBytes, free),
                    .warning = ""};
  if (config.checkpoint.async && buffer.bytes < state)
    buffer.warning = text("saves in the background have ", human_bytes(buffer.bytes), " of memory per rank (",
                          given > 0 ? "checkpoint.buffer_mb" : "half of what is free on this host",
                          "), and the state of a rank has ", human_bytes(state),
                          ": after each save the next update waits for the disk");
  return buffer;
}

}  // namespace trireme
