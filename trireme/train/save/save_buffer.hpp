#pragma once
// The host memory for saves in the background. Data that do not fit make training wait for the disk.
#include <string>

#include "trireme/config/schema/config.hpp"

namespace trireme {

struct SaveBuffer {
  double bytes = 0;     // per rank
  std::string warning;  // empty if all of a rank's state fits
};

/// checkpoint.buffer_mb, or as much as a rank saves (`state` bytes), if a host of `ranks_of_host` ranks has it.
SaveBuffer save_buffer(const Config& config, double state, int ranks_of_host);

}  // namespace trireme
