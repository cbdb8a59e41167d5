#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/sources/model_target.hpp"
#include "trireme/checkpoint/sources/nanotron_format.hpp"
#include "trireme/checkpoint/sources/read_blocks.hpp"
#include "trireme/config/translate/nanotron_names.hpp"
#include "trireme/files/new_folder.hpp"
#include "trireme/files/safetensors_write.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Layers in equal runs; nanotron finds shards wherever they are when it loads.
int pipeline_rank(const std::string& ours, const ModelConfig& model, int pp) {
  if (ours == "norm.weight" || ours == "head.weight") return pp - 1;
  if (!ours.starts_with("layers.")) return 0;
  return static_cast<int>(std::stoll(ours.substr(7)) * pp / model.num_hidden_layers);
}

config::HfTokenIds tokens_of(const FilesBeside& files) {
  const Json json = Json::parse(files.at("config.json"));
  const auto id = [&](const char* key) -> std::optional<std::int64_t> {
    const Json value = json.value(key, Json());
    return value.is_number_integer() ? std::optional(value.get<std::int64_t>()) : std::nullopt;
  };
  return {.bos = id("bos_token_id"), .eos = id("eos_token_id"), .pad = id("pad_token_id")};
}

/// No training yet: nanotron compares these numbers with each other.
std::string metadata_json(const NanotronLayout& layout) {
  const Json json = {{"version", kNanotronVersion},
                     {"tp", layout.tp},
                     {"dp", 1},
                     {"cp", 1},
                     {"custom_metas", nullptr},
                     {"metas",
                      {{"consumed_train_samples", 0},
                       {"consumed_tokens_total", 0},
                       {"last_train_step", 0},
                       {"last_stage_idx", nullptr},
                       {"data_stages", Json::array()}}}};
  return json.dump(2) + "\n";
}

class NanotronWriter {
 public:
  NanotronWriter(const ModelSource& source, const fs::path& folder, const NanotronLayout& layout,
                 std::optional<files::SafetensorsDtype> dtype)
      : source_(source), layout_(layout), dtype_(dtype), folder_(folder) {}

  void write() {
    const std::string model_config = nanotron_model_config(source_.model(), tokens_of(source_.files()));
    for (const ModelTensor& tensor : source_.tensors()) write_tensor(tensor);
    for (const auto& [name, contents] : files_for(source_, dtype_)) write_text(name, contents);
    write_text("model_config.json", model_config);
    write_text("checkpoint_metadata.json", metadata_json(layout_));
    folder_.publish();
  }

 private:
  void write_text(const std::string& name, const std::string& contents) {
    files::StagedFiles staged;
    staged.add(folder_.path() / name).append(contents);
    staged.publish();
  }

  void write_tensor(const ModelTensor& tensor) {
    const std::string theirs = config::nanotron_name(tensor.name);
    const std::size_t dot = theirs.rfind('.');
    fs::path module = folder_.path() / "model";
    for (std::size_t at = 0; at < dot;) {
      const std::size_t end = std::min(theirs.find('.', at), dot);
      module /= theirs.substr(at, end - at);
      at = end + 1;
    }
    fs::create_directories(module);
    NanotronFile file{.parameter = theirs.substr(dot + 1)};
    const std::optional<Placement> placement = nanotron_placement(source_.model(), tensor.name);
    const Grid grid = Grid::dense({.tp = layout_.tp});
    file.pp = layout_.pp;
    file.tp = layout_.tp;
    file.pp_rank = pipeline_rank(tensor.name, source_.model(), layout_.pp);
    file.is_shard = placement && (layout_.tp > 1 || !layout_.documented);
    for (file.tp_rank = 0; file.tp_rank < (placement ? layout_.tp : 1); ++file.tp_rank) {
      const Placement where = placement.value_or(Placement{});
      const ShardedInfo info = sharded_info(where, tensor.shape, grid, file.tp_rank);
      files::SafetensorsHeader::Metadata metadata;
      if (placement)
        metadata = {{"version", kNanotronVersion},
                    {"local_global_slices_pairs", str(info.local_global_slices_pairs)},
                    {"unsharded_shape", tuple_text(tensor.shape)}};
      write_shard(tensor, info, local_shape(where, tensor.shape, grid), module / file_name(file), metadata);
    }
  }

  /// The slices of a shard follow each other along the first dim, in which they are whole in the shard.
  void write_shard(const ModelTensor& tensor, const ShardedInfo& info, const Shape& shape, const fs::path& path,
                   const files::SafetensorsHeader::Metadata& metadata) {
    const files::SafetensorsDtype dtype = dtype_.value_or(tensor.dtype);
    files::StagedFiles staged;
    files::SafetensorsWriter writer(staged.add(path), {{"data", dtype, shape}}, metadata);
    for (const SlicesPair& pair : info.local_global_slices_pairs)
      for_each_block(box_of(pair.global_slices), 0, tensor.dtype,
                     [&](const Box& part) { writer.append("data", read_as(source_, tensor, part, dtype)); });
    writer.finish();
    staged.publish();
  }

  const ModelSource& source_;
  const NanotronLayout layout_;
  const std::optional<files::SafetensorsDtype> dtype_;
  files::NewFolder folder_;
};

}  // namespace

void write_nanotron(const ModelSource& source, const fs::path& folder, const NanotronLayout& layout,
                    std::optional<files::SafetensorsDtype> dtype) {
  check_for_nanotron(source.model(), layout.tp);
  require<ConfigError>(layout.pp >= 1 && layout.pp <= source.model().num_hidden_layers, "--pp ", layout.pp,
                       ": must be from 1 to the number of layers, ", source.model().num_hidden_layers);
  NanotronWriter writer(source, folder, layout, dtype);
  try {
    writer.write();
  } catch (const DataError& e) {  // of the disk
    throw CheckpointError(e.what());
  }
}

}  // namespace trireme::checkpoint
