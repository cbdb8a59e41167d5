#pragma once
// A model for forwards only, of a checkpoint in any format, on any tp x pp layout: weights, and nothing beside them.
#include <memory>
#include <vector>

#include "trireme/checkpoint/sources/model_source.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/model/decoder.hpp"

namespace trireme {

/// `source.model()` without what is for training only: dropout, auxiliary losses, limits of an expert's tokens.
ModelConfig model_for_inference(const checkpoint::ModelSource& source);

/// The ranks of the mesh hold it: layers over pp, heads and features over tp.
class InferenceModel {
 public:
  /// Reads the weights. ConfigError for sizes that the layout does not divide; CheckpointError. Collective.
  InferenceModel(const ModelConfig& model, const checkpoint::ModelSource& source, Mesh& mesh, at::Device device,
                 at::ScalarType dtype);

  /// All layers; what other stages send is received. [T, D] on the last stage, undefined on the others. Collective.
  at::Tensor hidden(const at::Tensor& ids_T, const ForwardContext& context);
  /// Of the last stage.
  Decoder& decoder() { return *decoder_; }
  bool is_last_stage() const;
  const ModelConfig& config() const { return model_; }
  Mesh& mesh() { return mesh_; }
  at::Device device() const { return device_; }
  at::ScalarType dtype() const { return dtype_; }

 private:
  const ModelConfig model_;
  Mesh& mesh_;
  const at::Device device_;
  const at::ScalarType dtype_;
  std::shared_ptr<Decoder> decoder_;  // the part of this rank
};

}  // namespace trireme
