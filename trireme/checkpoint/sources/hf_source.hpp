#pragma once
// A Hugging Face folder as a source of weights.
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "trireme/checkpoint/sources/model_source.hpp"
#include "trireme/describe/weight_names.hpp"
#include "trireme/files/safetensors_folder.hpp"

namespace trireme::checkpoint {

/// A part of our parameter, and where it is.
struct HfPart {
  WeightName name;
  files::SafetensorsFolder::Found found;
};

/// Which tensors of a folder our parameters are made of.
class HfWeights {
 public:
  /// `path`: a folder with model.safetensors or an index and shards, or one .safetensors file. CheckpointError lists
  /// every tensor that is missing, has a different shape than in the config, is no floating-point number, or is not
  /// part of the model.
  HfWeights(const std::filesystem::path& path, const ModelConfig& model);
  HfWeights(const HfWeights&) = delete;
  HfWeights& operator=(const HfWeights&) = delete;

  const std::string& shown() const { return folder_.shown(); }
  bool has(const std::string& ours) const { return parts_.contains(ours); }
  const std::vector<HfPart>& parts(const std::string& ours) const { return parts_.at(ours); }
  /// A head that a tied model has in its files, but which is not its embedding; may be empty.
  const std::string& note() const { return note_; }

 private:
  std::optional<files::SafetensorsFolder::Found> find(const std::string& theirs);
  std::vector<std::string> unused() const;

  files::SafetensorsFolder folder_;
  std::set<std::string, std::less<>> used_;
  std::map<std::string, std::vector<HfPart>> parts_;
  std::string note_;
};

/// With the folder's config.json.
std::unique_ptr<ModelSource> open_hf_source(const std::filesystem::path& path);

/// The model of a config.json, derived. ConfigError as in config/translate/hf_config.hpp.
ModelConfig model_of_config_json(const std::string& shown, const std::string& json);

}  // namespace trireme::checkpoint
