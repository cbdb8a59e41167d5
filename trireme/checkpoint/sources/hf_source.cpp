#include "trireme/checkpoint/sources/hf_source.hpp"

#include <algorithm>
#include <iterator>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/sources/transpose.hpp"
#include "trireme/config/read/hf_model.hpp"
#include "trireme/describe/parameters.hpp"
#include "trireme/files/convert_dtype.hpp"

namespace trireme::checkpoint {
namespace {

/// Non-weight tensors that the files may contain: constants that old versions of transformers wrote.
bool is_constant(std::string_view name) {
  for (const char* end : {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"})
    if (name.ends_with(end)) return true;
  return false;
}

/// The number of the first element of `part` in the row-major elements of `box`.
std::size_t first_element(const Box& part, const Box& box) {
  std::int64_t index = 0;
  for (std::size_t dim = 0; dim < box.size(); ++dim) index = index * box[dim].size() + part[dim].begin - box[dim].begin;
  return static_cast<std::size_t>(index);
}

class HfSource final : public ModelSource {
 public:
  HfSource(const std::filesystem::path& path, ModelConfig model, FilesBeside beside, std::string note)
      : model_(std::move(model)), beside_(std::move(beside)), weights_(path, model_), note_(std::move(note)) {
    if (!weights_.note().empty()) note_ += text(note_.empty() ? "" : "; ", weights_.note());
    for (const Parameter& parameter : all_parameters(model_)) {
      const std::string& name = parameter.name;
      const std::vector<HfPart>& parts = weights_.parts(name);
      for (const HfPart& part : parts)
        require<CheckpointError>(part.found.entry.dtype == parts[0].found.entry.dtype, shown(), ": ", part.name.theirs,
                                 " is of dtype ", files::name(part.found.entry.dtype), ", and ", parts[0].name.theirs,
                                 ", with which it is one parameter here, of ", files::name(parts[0].found.entry.dtype),
                                 "\n  fix: save both in one dtype");
      tensors_.push_back({name, parts[0].found.entry.dtype, parameter.spec.shape});
    }
  }

  const std::string& shown() const override { return weights_.shown(); }
  const ModelConfig& model() const override { return model_; }
  const std::vector<ModelTensor>& tensors() const override { return tensors_; }
  const FilesBeside& files() const override { return beside_; }
  std::string note() const override { return note_; }

  void read(const ModelTensor& tensor, const Box& box, std::span<std::byte> out) const override {
    const std::size_t element = static_cast<std::size_t>(files::bits(tensor.dtype)) / 8;
    for (const HfPart& part : weights_.parts(tensor.name)) {
      const std::optional<WeightPart> common = part_of_weight(part.name, box);
      if (!common) continue;
      std::vector<std::int64_t> starts, sizes;
      for (const Range& range : common->theirs) {
        starts.push_back(range.begin);
        sizes.push_back(range.size());
      }
      // Whole rows of the box, one after the other.
      const auto place =
          out.subspan(first_element(common->ours, box) * element, bytes_of_box(common->ours, tensor.dtype));
      if (!part.name.transposed) {
        part.found.file.read(part.found.entry, starts, sizes, place);
        continue;
      }
      std::vector<std::byte> turned(place.size());
      part.found.file.read(part.found.entry, starts, sizes, turned);
      transpose(turned, static_cast<std::size_t>(sizes[0]), static_cast<std::size_t>(sizes[1]), element, place);
    }
  }

 private:
  ModelConfig model_;
  FilesBeside beside_;
  HfWeights weights_;
  std::string note_;
  std::vector<ModelTensor> tensors_{};
};

}  // namespace

HfWeights::HfWeights(const std::filesystem::path& path, const ModelConfig& model) : folder_(path) {
  std::map<std::string, Shape> shapes;
  for (const Parameter& parameter : all_parameters(model)) shapes.emplace(parameter.name, parameter.spec.shape);
  std::vector<std::string> wrong;
  for (const WeightName& name : weight_names(model)) {
    const auto found = find(name.theirs);
    if (!found) {
      wrong.push_back(text(name.theirs, " is missing"));
      continue;
    }
    const Shape wanted = their_shape(name, shapes.at(name.ours));
    if (found->entry.shape != wanted)
      wrong.push_back(
          text(name.theirs, " has shape ", tuple_text(found->entry.shape), ", the model's is ", tuple_text(wanted)));
    else if (!files::is_weight_dtype(found->entry.dtype))
      wrong.push_back(text(name.theirs, " is of dtype ", files::name(found->entry.dtype),
                           ": weights must be F64, F32, F16 or BF16, not quantised"));
    else
      parts_[name.ours].push_back({name, *found});
  }
  for (const std::string& name : unused())
    if (!(model.tie_word_embeddings && name == "lm_head.weight"))
      wrong.push_back(text(name, " has no place in a ", model.model_type, " model of this config"));
  require_fit(shown(), wrong, "take model settings from the folder's own config.json (model.hf)");
  if (!model.tie_word_embeddings) return;
  const auto head = find("lm_head.weight");
  const HfPart& embedding = parts("embedding.weight")[0];
  if (head && !std::ranges::equal(head->file.bytes(head->entry), embedding.found.file.bytes(embedding.found.entry)))
    note_ = text(shown(), ": lm_head.weight differs from the embedding and is not used, because ",
                 "model.tie_word_embeddings = true");
}

/// GPT-2's original files omit the prefix "transformer.".
std::optional<files::SafetensorsFolder::Found> HfWeights::find(const std::string& theirs) {
  for (const std::string& candidate : {theirs, theirs.substr(theirs.find('.') + 1)})
    if (auto found = folder_.find(candidate)) {
      used_.insert(candidate);
      return found;
    }
  return std::nullopt;
}

std::vector<std::string> HfWeights::unused() const {
  std::vector<std::string> names;
  for (const std::string_view name : folder_.names())
    if (!used_.contains(name) && !is_constant(name)) names.emplace_back(name);
  return names;
}

ModelConfig model_of_config_json(const std::string& shown, const std::string& json) {
  return config::model_of_hf_config(shown, config::parse_hf_config(shown, json));
}

std::unique_ptr<ModelSource> open_hf_source(const std::filesystem::path& path) {
  std::string note;
  FilesBeside beside = files_beside(path, note);
  const auto config = beside.find("config.json");
  if (config == beside.end()) {
    std::error_code failed;
    const std::filesystem::path file = path / "config.json";
    const std::filesystem::file_status status = std::filesystem::status(file, failed);
    constexpr const char* kFix = "\n  fix: put the config.json of the model there";
    require<CheckpointError>(std::filesystem::exists(std::filesystem::symlink_status(file, failed)), path.string(),
                             ": has weights, but no config.json", kFix);
    require<CheckpointError>(std::filesystem::is_regular_file(status), file.string(), ": is not a regular file", kFix);
    throw CheckpointError(text(file.string(), ": has ", std::filesystem::file_size(file, failed),
                               " bytes, which is not a model's config", kFix));
  }
  ModelConfig model = model_of_config_json((path / "config.json").string(), config->second);
  return std::make_unique<HfSource>(path, std::move(model), std::move(beside), std::move(note));
}

}  // namespace trireme::checkpoint
