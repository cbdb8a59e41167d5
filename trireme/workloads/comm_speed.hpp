#pragma once
// Times the collectives of a group of ranks. Without torch's headers, for the command line.
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/runtime/environment/environment.hpp"
#include "trireme/runtime/environment/variables.hpp"

namespace trireme::workloads {

/// all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_recv.
const std::vector<std::string>& comm_op_names();

struct CommSpeed {
  std::string op;
  std::int64_t bytes = 0;   // of the larger of input and output of a rank
  std::int64_t count = 0;   // elements, f32
  double seconds = 0;       // of a call: the median of all repetitions, of the slowest rank
  double fastest = 0;       // the same of the fastest rank
  double algbw = 0;         // bytes / seconds
  double busbw = 0;         // algbw times what a link must carry at least, by NVIDIA's convention
  std::string transport{};  // Group::transport()
};

struct CommSpeedOptions {
  std::vector<std::string> ops{};
  std::vector<std::int64_t> sizes{};  // bytes
  int repetitions = 20;
  double seconds = 0.5;  // fewer repetitions of what takes longer than this together
  std::string backend = "auto";
};

/// Collective over all ranks of the environment; the same on all. ConfigError for an unknown op, or too few ranks.
std::vector<CommSpeed> measure_comm(const CommSpeedOptions& options, const Environment& environment,
                                    const Variables& variables);

}  // namespace trireme::workloads
