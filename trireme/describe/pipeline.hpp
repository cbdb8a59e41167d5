#pragma once
// The pipeline of a config: its schedule, and which rank holds which part of the model.
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/schema/config.hpp"
#include "trireme/layout/slices.hpp"
#include "trireme/schedule/schedule.hpp"

namespace trireme {

/// A schedule in its text form, checked by replay(). ConfigError names the file and the line, or the rank and the
/// action that deadlocks, is missing or comes too early.
schedule::Schedule read_schedule(const std::string& path);

/// parallelism.pp_schedule, or that of parallelism.pp_schedule_file, which must be for this number of ranks and
/// microbatches. ConfigError that names the file, the rank and the action if it cannot be run.
schedule::Schedule pipeline_schedule(const ParallelismConfig& parallelism, std::int64_t microbatches);

/// A contiguous part of the model, and the pipeline rank that holds it.
struct PipelineChunk {
  int stage = 0;
  Range layers;
  bool operator==(const PipelineChunk&) const = default;
};

/// In the order of the layers: parallelism.stages, or else layers_over_stages() by the weights that a token is
/// multiplied with, those of the head included. The schedule says which rank holds which chunk. ConfigError if there
/// are more chunks than layers.
std::vector<PipelineChunk> pipeline_chunks(const ModelConfig& model, const ParallelismConfig& parallelism);

/// The pipeline rank that holds a parameter. The embedding, which may also be the head, is on the first chunk's; the
/// last norm and a head of its own are on the last chunk's.
int stage_of_parameter(const std::vector<PipelineChunk>& chunks, std::string_view name);

}  // namespace trireme
