#pragma once
// What sets the families of models apart, as one table. Who needs to know reads a column; nobody compares names.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/schema/config.hpp"

namespace trireme::config {

enum class Family { gpt2, llama, mistral, qwen2, qwen3, mixtral };

/// rms_norm has a weight, layer_norm a weight and a bias.
enum class NormKind { rms_norm, layer_norm };
enum class PositionKind { rope, learned };
/// gelu: up and down, with biases. swiglu: gate, up and down, without.
enum class MlpKind { gelu, swiglu };
/// by_config: as model.attention_bias says.
enum class BiasRule { never, always, by_config };

/// Whose words stand in config.json, and whose names in the files of weights.
enum class HfNames { gpt2, llama };
/// number: sliding_window, or null. switched: it counts only where use_sliding_window is true, and only in the layers
/// from max_window_layers on.
enum class HfWindow { none, number, switched };
/// fill_hidden_size: there are no key-value heads, and all heads together are as wide as hidden_size.
/// divide_hidden_size: hidden_size is a multiple of their number, whatever head_dim is.
enum class HfHeads { any, divide_hidden_size, fill_hidden_size };

/// The family's class in transformers: what it is called, and what it can be told.
struct HfTraits {
  const char* architecture;
  HfNames names;
  bool reads_attention_bias;
  bool reads_mlp_bias;
  bool has_qk_norm;  // always, or never
  HfWindow window;
  HfHeads heads;
};

struct FamilyInfo {
  Family id;
  std::string_view name;  // the model_type
  bool has_decoder;       // else a config may describe it, and its parameters are counted, but nothing runs it
  NormKind norm;
  PositionKind positions;
  MlpKind mlp;
  BiasRule qkv_bias, out_bias;     // has_qkv_bias() and has_out_bias() answer for a model
  std::int64_t default_mlp_ratio;  // intermediate_size / hidden_size where that is not given; 0: it must be given
  bool scaled_residual_init;       // weights that write to the residual stream begin smaller, by sqrt(2 layers)
  HfTraits hf;
};

/// All of them, in the order of the enum.
std::span<const FamilyInfo> families();
/// Nothing when there is no such model_type.
const FamilyInfo* find_family(std::string_view name);
/// ConfigError when there is no such model_type.
const FamilyInfo& family_of(const ModelConfig& model);

std::vector<std::string> family_names();
/// "gpt2, llama, ...": those that have a decoder, for messages.
std::string names_with_decoder();

/// Whether the projections to queries, keys and values have a bias.
bool has_qkv_bias(const ModelConfig& model);
/// Whether the projection of the attention's output has one.
bool has_out_bias(const ModelConfig& model);

}  // namespace trireme::config
