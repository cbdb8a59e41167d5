#pragma once
// Loads weights from a Hugging Face folder into a Decoder of any layout: each rank reads only what it keeps.
#include <filesystem>
#include <memory>
#include <vector>

#include "trireme/comm/param_mesh.hpp"
#include "trireme/describe/weight_names.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/nn/param_values.hpp"

namespace trireme {

/// The weights of a folder, to be read parameter by parameter.
class HuggingFaceWeights {
 public:
  /// `path`: a folder with model.safetensors or an index and shards, or one .safetensors file; any float dtype is
  /// converted. CheckpointError lists every tensor that is missing, has a different shape than in the config, or is not
  /// part of the model, with its file.
  HuggingFaceWeights(const Decoder& decoder, const std::filesystem::path& path);
  /// For the parameters of one or several parts of a model.
  HuggingFaceWeights(const ModelConfig& model, const std::vector<Param>& params, const std::filesystem::path& path);
  ~HuggingFaceWeights();

  /// A note about the folder for the user; may be empty.
  const std::string& note() const;

  /// The weights of the decoder's parameters; valid as long as this object.
  ParamValues values(const ParamMesh& mesh) const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

/// Fills all parameters of `decoder`, and sets the paths of its layers.
void load_hugging_face(Decoder& decoder, const std::filesystem::path& path, const ParamMesh& mesh);

/// The Hugging Face tensor `name.theirs`, from the full parameter `name.ours`.
at::Tensor their_tensor(const WeightName& name, const at::Tensor& ours);

}  // namespace trireme
