#include "trireme/config/schema/family.hpp"

#include <array>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/registered_families.hpp"
#include "trireme/config/schema/setting.hpp"

namespace trireme::config {
namespace {

constexpr std::array kFamilies = {
    FamilyInfo{.id = Family::gpt2,
               .name = "gpt2",
               .norm = NormKind::layer_norm,
               .positions = PositionKind::learned,
               .mlp = MlpKind::gelu,
               .qkv_bias = BiasRule::always,
               .out_bias = BiasRule::always,
               .default_mlp_ratio = 4,
               .scaled_residual_init = true,
               .hf = {.architecture = "GPT2LMHeadModel",
                      .names = HfNames::gpt2,
                      .reads_attention_bias = false,
                      .reads_mlp_bias = false,
                      .has_qk_norm = false,
                      .window = HfWindow::none,
                      .heads = HfHeads::fill_hidden_size}},
    FamilyInfo{.id = Family::llama,
               .name = "llama",
               .norm = NormKind::rms_norm,
               .positions = PositionKind::rope,
               .mlp = MlpKind::swiglu,
               .qkv_bias = BiasRule::by_config,
               .out_bias = BiasRule::by_config,
               .default_mlp_ratio = 0,
               .scaled_residual_init = false,
               .hf = {.architecture = "LlamaForCausalLM",
                      .names = HfNames::llama,
                      .reads_attention_bias = true,
                      .reads_mlp_bias = true,
                      .has_qk_norm = false,
                      .window = HfWindow::none,
                      .heads = HfHeads::divide_hidden_size}},  // transformers 5 requires it even if head_dim is given
    FamilyInfo{.id = Family::mistral,
               .name = "mistral",
               .norm = NormKind::rms_norm,
               .positions = PositionKind::rope,
               .mlp = MlpKind::swiglu,
               .qkv_bias = BiasRule::by_config,  // ours may have biases, the one in transformers has none
               .out_bias = BiasRule::by_config,
               .default_mlp_ratio = 0,
               .scaled_residual_init = false,
               .hf = {.architecture = "MistralForCausalLM",
                      .names = HfNames::llama,
                      .reads_attention_bias = false,
                      .reads_mlp_bias = false,
                      .has_qk_norm = false,
                      .window = HfWindow::number,
                      .heads = HfHeads::any}},
    FamilyInfo{.id = Family::qwen2,
               .name = "qwen2",
               .norm = NormKind::rms_norm,
               .positions = PositionKind::rope,
               .mlp = MlpKind::swiglu,
               .qkv_bias = BiasRule::always,  // regardless of attention_bias
               .out_bias = BiasRule::never,
               .default_mlp_ratio = 0,
               .scaled_residual_init = false,
               .hf = {.architecture = "Qwen2ForCausalLM",
                      .names = HfNames::llama,
                      .reads_attention_bias = false,
                      .reads_mlp_bias = false,
                      .has_qk_norm = false,
                      .window = HfWindow::switched,
                      .heads = HfHeads::any}},
    FamilyInfo{.id = Family::qwen3,
               .name = "qwen3",
               .norm = NormKind::rms_norm,
               .positions = PositionKind::rope,
               .mlp = MlpKind::swiglu,
               .qkv_bias = BiasRule::by_config,
               .out_bias = BiasRule::by_config,
               .default_mlp_ratio = 0,
               .scaled_residual_init = false,
               .hf = {.architecture = "Qwen3ForCausalLM",
                      .names = HfNames::llama,
                      .reads_attention_bias = true,
                      .reads_mlp_bias = false,
                      .has_qk_norm = true,
                      .window = HfWindow::switched,
                      .heads = HfHeads::any}},
    FamilyInfo{.id = Family::mixtral,
               .name = "mixtral",
               .norm = NormKind::rms_norm,
               .positions = PositionKind::rope,
               .mlp = MlpKind::swiglu,
               .qkv_bias = BiasRule::by_config,
               .out_bias = BiasRule::by_config,
               .default_mlp_ratio = 0,
               .scaled_residual_init = false,
               .hf = {.architecture = "MixtralForCausalLM",
                      .names = HfNames::llama,
                      .reads_attention_bias = false,
                      .reads_mlp_bias = false,
                      .has_qk_norm = false,
                      .window = HfWindow::number,
                      .heads = HfHeads::any,
                      .experts = HfExperts::mixtral}},
    FamilyInfo{.id = Family::qwen3_moe,
               .name = "qwen3_moe",
               .norm = NormKind::rms_norm,
               .positions = PositionKind::rope,
               .mlp = MlpKind::swiglu,
               .qkv_bias = BiasRule::by_config,
               .out_bias = BiasRule::by_config,
               .default_mlp_ratio = 0,
               .scaled_residual_init = false,
               .hf = {.architecture = "Qwen3MoeForCausalLM",
                      .names = HfNames::llama,
                      .reads_attention_bias = true,
                      .reads_mlp_bias = false,
                      .has_qk_norm = true,
                      .window = HfWindow::switched,
                      .heads = HfHeads::any,
                      .experts = HfExperts::qwen}},
    FamilyInfo{.id = Family::gemma2,
               .name = "gemma2",
               .norm = NormKind::unit_rms_norm,
               .positions = PositionKind::rope,
               .mlp = MlpKind::geglu,
               .qkv_bias = BiasRule::by_config,
               .out_bias = BiasRule::by_config,
               .default_mlp_ratio = 0,
               .scaled_residual_init = false,
               .hf = {.architecture = "Gemma2ForCausalLM",
                      .names = HfNames::llama,
                      .reads_attention_bias = true,
                      .reads_mlp_bias = false,
                      .has_qk_norm = false,
                      .window = HfWindow::alternating,
                      .heads = HfHeads::any,
                      .has_softcaps = true},
               .post_norms = true,
               .scaled_embedding = true},
};

bool holds(BiasRule rule, const ModelConfig& m) {
  return rule == BiasRule::always || (rule == BiasRule::by_config && m.attention_bias);
}

}  // namespace

std::span<const FamilyInfo> families() { return kFamilies; }

const FamilyInfo* find_family(std::string_view name) {
  for (const FamilyInfo& family : kFamilies)
    if (family.name == name) return &family;
  return find_registered_family(name);
}

const FamilyInfo& family_of(const ModelConfig& m) {
  if (const FamilyInfo* family = find_family(m.model_type)) return *family;
  throw ConfigError(text("model.model_type = \"", shortened(m.model_type), "\" is not one of: ", all_family_names()));
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const FamilyInfo& family : kFamilies) names.emplace_back(family.name);
  for (std::string& name : registered_family_names()) names.push_back(std::move(name));
  return names;
}

std::string all_family_names() {
  std::string names;
  for (const std::string& name : family_names()) names += text(names.empty() ? "" : ", ", name);
  return names;
}

bool has_qkv_bias(const ModelConfig& m) { return holds(family_of(m).qkv_bias, m); }

std::int64_t window_of_layer(const ModelConfig& m, std::int64_t layer) {
  const bool sees_all = m.sliding_window_pattern > 0 && (layer + 1) % m.sliding_window_pattern == 0;
  return sees_all ? 0 : m.sliding_window;
}

bool has_out_bias(const ModelConfig& m) { return holds(family_of(m).out_bias, m); }

std::int64_t rope_original_length(const ModelConfig& m) {
  const std::int64_t given = m.rope_scaling.original_max_position_embeddings;
  return given > 0 ? given : m.max_position_embeddings;
}

}  // namespace trireme::config
