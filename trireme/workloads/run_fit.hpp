#pragma once
// One run of `trireme bench fit`, on one of its ranks. Without torch's headers, for the command line.
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/runtime/environment/environment.hpp"
#include "trireme/runtime/environment/variables.hpp"

namespace trireme::workloads {

/// Those of workload.hpp.
const std::vector<std::string>& workload_names();
/// none, fsdp_no_shard, fsdp_shard_grad_op, fsdp_full_shard, pipeline.
const std::vector<std::string>& technique_names();

struct FitRun {
  std::string model, technique;
  int batch_size = 1, epochs = 1;
  std::int64_t samples = 1;
  bool gpu = false;  // rank r on GPU r
};

struct FitFigures {
  double seconds = 0;  // of training and validation
  double validation_loss = 0, validation_accuracy = 0;
};

/// Collective over all ranks of the environment. Technique "none" uses rank 0 alone.
FitFigures run_fit(const FitRun& run, const Environment& environment, const Variables& variables);

}  // namespace trireme::workloads
