#include "trireme/checkpoint/sources/own_source.hpp"

#include <algorithm>
#include <array>
#include <fstream>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/checkpoint/sources/hf_source.hpp"
#include "trireme/checkpoint/sources/stored_config.hpp"
#include "trireme/config/translate/hf_config_write.hpp"
#include "trireme/describe/parameters.hpp"
#include "trireme/files/convert_dtype.hpp"
#include "trireme/files/open_beneath.hpp"

namespace trireme::checkpoint {
namespace {

/// The dtype that a config.json names; nullopt: none.
std::optional<files::SafetensorsDtype> dtype_named_in(const std::string& config_json) {
  const auto json = nlohmann::json::parse(config_json);  // it has been read as a model's
  for (const char* key : {"dtype", "torch_dtype"})
    if (const auto found = json.find(key); found != json.end() && found->is_string())
      return files::weight_dtype(found->get<std::string>(), "config.json");
  return std::nullopt;
}

class OwnSource final : public ModelSource {
 public:
  explicit OwnSource(const std::filesystem::path& path) : reader_(path) {
    for (const StoredFile& file : reader_.manifest().files)
      if (file.header_bytes == file.bytes && files::is_base_name(file.name) && !is_rank_file(file.name))
        beside_.emplace(file.name, reader_.small_file(file.name));
    if (!beside_.contains("config.json")) take_model_of_run();
    const std::string& config = beside_.at("config.json");
    model_ = model_of_config_json(shown() + "/config.json", config);
    dtype_ = dtype_named_in(config);
    std::vector<std::string> wrong;
    for (const Parameter& parameter : all_parameters(model_)) {
      const auto& [name, shape] = std::tie(parameter.name, parameter.spec.shape);
      const StoredTensor* stored = find(reader_.manifest(), name, kWeight);
      if (stored == nullptr)
        wrong.push_back(name + " is missing");
      else if (stored->shape != shape)
        wrong.push_back(
            text(name, " has shape ", tuple_text(stored->shape), ", by config.json it is ", tuple_text(shape)));
      else
        tensors_.push_back({std::move(name), stored->dtype, std::move(shape)});
    }
    for (const StoredTensor& stored : reader_.manifest().tensors)
      if (stored.kind == kWeight && std::ranges::find(tensors_, stored.name, &ModelTensor::name) == tensors_.end() &&
          wrong.empty())
        wrong.push_back(text(stored.name, " has no place in a ", model_.model_type, " model of this config.json"));
    require_fit(shown(), wrong, "a checkpoint whose config.json was not changed");
  }

  const std::string& shown() const override { return reader_.shown(); }
  const ModelConfig& model() const override { return model_; }
  const std::vector<ModelTensor>& tensors() const override { return tensors_; }
  const FilesBeside& files() const override { return beside_; }
  std::optional<files::SafetensorsDtype> usual_dtype() const override { return dtype_; }
  void read(const ModelTensor& tensor, const Box& box, std::span<std::byte> out) const override {
    reader_.read(*find(reader_.manifest(), tensor.name, kWeight), box, out);
  }
  std::string note() const override { return note_; }

 private:
  /// transformers has no such model, so that there is no config.json: the manifest has the model, too.
  void take_model_of_run() {
    const ModelConfig model = stored_config(reader_.manifest(), shown()).config.model;
    std::string dtype = model.dtype;
    for (const char* key : {"precision.param", "model.dtype"})
      if (const auto given = reader_.manifest().config.find(key);
          given != reader_.manifest().config.end() && given->second != "\"auto\"") {
        dtype = given->second.substr(1, given->second.size() - 2);  // in quotes
        break;
      }
    if (dtype == "auto") dtype = "float32";
    const std::string lack = config::what_transformers_lacks(model, dtype);
    beside_.emplace("config.json",
                    lack.empty() ? config::hf_config_json(model, dtype) : config::own_config_json(model, dtype));
    if (!lack.empty())
      note_ = text("transformers cannot load it, and Trireme can: its model_type is \"", config::kOwnTypePrefix,
                   model.model_type, "\" (", lack.substr(0, lack.find("\n  fix: ")), ")");
  }

  Reader reader_;
  ModelConfig model_{};
  FilesBeside beside_{};
  std::optional<files::SafetensorsDtype> dtype_{};
  std::string note_{};
  std::vector<ModelTensor> tensors_{};
};

}  // namespace

bool is_own_checkpoint(const std::filesystem::path& folder) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(folder / kManifestName, failed)) return false;
  std::array<char, kManifestBegin.size()> begin{};
  std::ifstream file(folder / kManifestName, std::ios::binary);
  return file.read(begin.data(), begin.size()) && std::string_view(begin.data(), begin.size()) == kManifestBegin;
}

std::unique_ptr<ModelSource> open_own_source(const std::filesystem::path& path) {
  return std::make_unique<OwnSource>(path);
}

}  // namespace trireme::checkpoint
