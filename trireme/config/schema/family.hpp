#pragma once
// The properties of the model families, as one table. Other code reads a column instead of comparing names.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/schema/config.hpp"

namespace trireme::config {

enum class Family { gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen3_moe, gemma2 };

/// rms_norm has a weight, layer_norm a weight and a bias. unit_rms_norm: an RMS norm whose weight is added to 1.
enum class NormKind { rms_norm, layer_norm, unit_rms_norm };
enum class PositionKind { rope, learned };
/// gelu: up and down, with biases. swiglu, geglu: gate, up and down, without; the activation of the gate.
enum class MlpKind { gelu, swiglu, geglu };
/// by_config: given by model.attention_bias.
enum class BiasRule { never, always, by_config };

/// Which naming scheme config.json and the weight files use.
enum class HfNames { gpt2, llama };
/// number: sliding_window, or null. switched: only applies if use_sliding_window is true, and only to the layers from
/// max_window_layers on.
/// alternating: sliding_window and layer_types, of which every second layer is without a window.
enum class HfWindow { none, number, switched, alternating };
constexpr std::int64_t kAlternatingPattern = 2;  // model.sliding_window_pattern of such a family
/// fill_hidden_size: no key-value heads, and num_heads * head_dim = hidden_size. divide_hidden_size: hidden_size is a
/// multiple of the number of heads, whatever head_dim is.
enum class HfHeads { any, divide_hidden_size, fill_hidden_size };

/// What the MLPs of the family's layers are, and the names of their weights: none: dense; mixtral:
/// block_sparse_moe.experts.N.w1; qwen: mlp.experts.N.gate_proj.
enum class HfExperts { none, mixtral, qwen };

/// The family's class in transformers: its name, and what its config can express.
struct HfTraits {
  const char* architecture;
  HfNames names;
  bool reads_attention_bias;
  bool reads_mlp_bias;
  bool has_qk_norm;  // always, or never
  HfWindow window;
  HfHeads heads;
  HfExperts experts = HfExperts::none;
  bool has_softcaps = false;  // and query_pre_attn_scalar
};

struct FamilyInfo {
  Family id;
  std::string_view name;  // the model_type
  NormKind norm;
  PositionKind positions;
  MlpKind mlp;
  BiasRule qkv_bias, out_bias;     // use has_qkv_bias() and has_out_bias() for a model
  std::int64_t default_mlp_ratio;  // intermediate_size / hidden_size if not given; 0: required
  bool scaled_residual_init;       // weights that write to the residual stream are initialized / sqrt(2 layers)
  HfTraits hf;
  bool post_norms = false;        // attention and MLP are each followed by a norm, too
  bool scaled_embedding = false;  // embeddings are multiplied by sqrt(hidden_size)
  /// Of a family that the program has registered (registered_families.hpp): the built-in one that it is like.
  std::string_view like = {};

  bool is_registered() const { return !like.empty(); }
};

/// The built-in families, in the order of the enum.
std::span<const FamilyInfo> families();
/// Built in or registered; nullptr for an unknown model_type.
const FamilyInfo* find_family(std::string_view name);
/// ConfigError for an unknown model_type.
const FamilyInfo& family_of(const ModelConfig& model);

std::vector<std::string> family_names();
/// "gpt2, llama, ...": for messages.
std::string all_family_names();

/// Whether the query, key and value projections have a bias.
bool has_qkv_bias(const ModelConfig& model);
/// The length that llama3's and YaRN's scaling start from: max_position_embeddings unless another one is given.
std::int64_t rope_original_length(const ModelConfig& model);

/// The window of a layer; 0: it attends to all tokens before it.
std::int64_t window_of_layer(const ModelConfig& model, std::int64_t layer);

/// Whether the attention output projection has a bias.
bool has_out_bias(const ModelConfig& model);

}  // namespace trireme::config
