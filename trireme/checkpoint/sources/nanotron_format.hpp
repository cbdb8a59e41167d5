#pragma once
// nanotron's checkpoints: names of files, how its layers are sharded, and its model_config.json.
#include <optional>
#include <string>
#include <string_view>

#include "trireme/config/schema/config.hpp"
#include "trireme/config/translate/hf_config_write.hpp"
#include "trireme/layout/placement.hpp"

namespace trireme::checkpoint {

// Note [nanotron's folder]
//   checkpoint_metadata.json   version, tp, dp, cp and how far the training has come
//   model_config.json          the fields of its LlamaConfig or Qwen2Config
//   model/PATH/model_weight.safetensors                                      a tensor that is not sharded: a norm
//   model/PATH/model_weight_pp-rank-0-of-1_tp-rank-0-of-2.safetensors        a shard of one that is
// PATH is the name of the module with / for . (model/decoder/0/pp_block/attn/qkv_proj). A file holds one tensor,
// `data`; the metadata of a shard (version, local_global_slices_pairs, unsharded_shape) says where it belongs: Note
// [Text of slices] in layout/slices.hpp. Its code writes ranks into the name of every tensor that could be sharded,
// also with tp = 1; its documentation only where it is. Both are read.
inline constexpr const char* kNanotronVersion = "1.5";

struct NanotronFile {
  std::string parameter;  // "weight"
  bool is_shard = false;
  int pp_rank = 0, pp = 1, tp_rank = 0, tp = 1;
  bool operator==(const NanotronFile&) const = default;
};
std::string file_name(const NanotronFile& file);
/// nullopt for any other name.
std::optional<NanotronFile> parse_nanotron_file(std::string_view name);

/// Whether a file of a checkpoint of ours (StoredFile::name) is in a folder that only nanotron's layout has:
/// docs/checkpoints.md.
bool is_of_nanotron_layout(std::string_view name);

/// How nanotron shards a parameter of ours over its tensor-parallel ranks; nullopt: every rank has all of it.
std::optional<Placement> nanotron_placement(const ModelConfig& model, const std::string& ours);

/// ConfigError if nanotron has no such model, or not with tensor parallelism of degree `tp`.
void check_for_nanotron(const ModelConfig& model, int tp);

std::string nanotron_model_config(const ModelConfig& model, const config::HfTokenIds& tokens);
/// The same model as a config.json; CheckpointError for what is not supported.
std::string config_json_of_nanotron(const std::string& shown, const std::string& model_config,
                                    const std::string& dtype);

}  // namespace trireme::checkpoint
