#pragma once
// The weights that a run starts from: random, or those of a Hugging Face folder or a checkpoint.
#include <memory>
#include <string>
#include <vector>

#include "trireme/checkpoint/sources/model_source.hpp"
#include "trireme/config/schema/config.hpp"
#include "trireme/model/hugging_face.hpp"
#include "trireme/nn/param_values.hpp"

namespace trireme {

class InitialValues {
 public:
  /// model.init of the config, for the parameters of this rank. ConfigError, CheckpointError.
  InitialValues(const Config& config, const std::vector<Param>& params, Mesh& mesh);

  /// Valid as long as this object.
  const ParamValues& values() const { return values_; }
  /// What to know about a folder that they come from; may be empty.
  std::string note() const { return folder_ ? folder_->note() : source_ ? source_->note() : ""; }

 private:
  std::unique_ptr<HuggingFaceWeights> folder_;
  std::unique_ptr<checkpoint::ModelSource> source_;
  ParamValues values_;
};

}  // namespace trireme
