#pragma once
// Where the parameters of a model are, without building it: how tp cuts each, and which pipeline stage holds it.
#include <string_view>
#include <vector>

#include "trireme/config/schema/config.hpp"
#include "trireme/layout/placement.hpp"

namespace trireme {

/// How the layers of nn/ declare a parameter of this name (one of parameter_names()). Expects derived values.
Placement parameter_placement(const ModelConfig& model, std::string_view name);

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
