#pragma once
// The parts of a model that a pipeline rank holds.
#include <vector>

#include "trireme/comm/mesh.hpp"
#include "trireme/describe/pipeline.hpp"
#include "trireme/model/decoder.hpp"

namespace trireme {

/// One part for each chunk of this rank, in the order of the model. `chunks`: of all ranks.
std::vector<DecoderPart> decoder_parts(const ModelConfig& model, const std::vector<PipelineChunk>& chunks,
                                       const Mesh& mesh);

}  // namespace trireme
