#pragma once
// One step of a run on one rank of each pipeline stage, without the other ranks: `trireme train --dry-run`.
#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "trireme/config/schema/config.hpp"
#include "trireme/runtime/process_setup.hpp"

namespace trireme {

struct DryStage {
  int rank = 0;  // the first of the stage
  double seconds = 0;
  std::int64_t peak_bytes = 0;
};

struct DryRun {
  std::vector<DryStage> stages;
  std::string data;                   // description of the training data
  std::vector<std::string> warnings;  // about data and weights
  std::string first_sample;           // of the first batch: its text, or its token ids without a tokenizer
};

/// Builds the model of a rank, reads the first batch, and runs forward, backward and the update, with FakeWorld in
/// place of the other ranks. `config` is for the number of ranks that will be started. Writes nothing.
DryRun dry_run(Config config, at::Device device, const ProcessSetup& process);

}  // namespace trireme
