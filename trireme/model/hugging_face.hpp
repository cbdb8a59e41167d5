#pragma once
// Weights from a Hugging Face folder into a Decoder of any layout: each rank reads its own slices only.
#include <filesystem>
#include <memory>
#include <vector>

#include "trireme/comm/param_mesh.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/model/families.hpp"

namespace trireme {

/// The weights of a folder, to be read parameter by parameter.
class HuggingFaceWeights {
 public:
  /// `path`: a folder with model.safetensors or an index and shards, or one .safetensors file; any float dtype, which
  /// is converted. CheckpointError names every tensor that is missing, has another shape than the config says, or that
  /// the model has no place for, and the file.
  HuggingFaceWeights(const Decoder& decoder, const std::filesystem::path& path);
  ~HuggingFaceWeights();

  /// What a user should know of the folder; empty: nothing.
  const std::string& note() const;

  /// Fills these parameters of the decoder, with what this rank holds of them.
  void read(const std::vector<Param>& params, const ParamMesh& mesh) const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

/// Fills all parameters of `decoder`, and tells the layers their names.
void load_hugging_face(Decoder& decoder, const std::filesystem::path& path, const ParamMesh& mesh);

/// The tensor that they call `name.theirs`, out of the whole of what we call `name.ours`.
at::Tensor their_tensor(const WeightName& name, const at::Tensor& ours);

}  // namespace trireme
