#include "trireme/model/stage.hpp"

namespace trireme {

std::vector<DecoderPart> decoder_parts(const ModelConfig& model, const std::vector<PipelineChunk>& chunks,
                                       const Mesh& mesh) {
  std::optional<TiedInfo> tie;
  if (model.tie_word_embeddings && chunks.size() > 1) {
    const std::vector<int>& pipeline = mesh.group(Axis::pp).world_ranks();
    tie = TiedInfo{.name = "embedding.weight", .root_module = "", .global_ranks = {}, .reduce_op = ReduceOp::sum};
    tie->global_ranks.push_back(pipeline[static_cast<std::size_t>(chunks.front().stage)]);
    if (chunks.back().stage != chunks.front().stage)
      tie->global_ranks.push_back(pipeline[static_cast<std::size_t>(chunks.back().stage)]);
  }
  std::vector<DecoderPart> parts;
  for (std::size_t c = 0; c < chunks.size(); ++c)
    if (chunks[c].stage == mesh.coord(Axis::pp))
      parts.push_back({.layers = chunks[c].layers,
                       .has_embedding = c == 0,
                       .has_head = c + 1 == chunks.size(),
                       .chunk = static_cast<int>(c),
                       .tie = tie});
  return parts;
}

}  // namespace trireme
