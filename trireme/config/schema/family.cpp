#include "trireme/config/schema/family.hpp"

#include <array>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/registered_families.hpp"
#include "trireme/config/schema/setting.hpp"

namespace trireme::config {
namespace {

/// What most families are like; each says what differs.
constexpr FamilyInfo kLlama{.id = Family::llama,
                            .name = "llama",
                            .norm = NormKind::rms_norm,
                            .positions = PositionKind::rope,
                            .mlp = MlpKind::swiglu,
                            .qkv_bias = BiasRule::by_config,
                            .out_bias = BiasRule::by_config,
                            .default_mlp_ratio = 0,
                            .scaled_residual_init = false,
                            // transformers 5 requires a multiple of the heads even if head_dim is given
                            .hf = {.architecture = "LlamaForCausalLM",
                                   .names = HfNames::llama,
                                   .reads_attention_bias = true,
                                   .reads_mlp_bias = true,
                                   .has_qk_norm = false,
                                   .window = HfWindow::none,
                                   .heads = HfHeads::divide_hidden_size}};

constexpr FamilyInfo like_llama(Family id, std::string_view name, const HfTraits& hf) {
  FamilyInfo family = kLlama;
  family.id = id;
  family.name = name;
  family.hf = hf;
  return family;
}

constexpr FamilyInfo gpt2() {
  return {.id = Family::gpt2,
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
                 .heads = HfHeads::fill_hidden_size}};
}

/// Ours may have biases, the one in transformers has none.
constexpr FamilyInfo mistral() {
  return like_llama(Family::mistral, "mistral",
                    {.architecture = "MistralForCausalLM",
                     .names = HfNames::llama,
                     .reads_attention_bias = false,
                     .reads_mlp_bias = false,
                     .has_qk_norm = false,
                     .window = HfWindow::number,
                     .heads = HfHeads::any});
}

constexpr FamilyInfo mixtral() {
  FamilyInfo family = mistral();
  family.id = Family::mixtral;
  family.name = "mixtral";
  family.hf.architecture = "MixtralForCausalLM";
  family.hf.experts = HfExperts::mixtral;
  return family;
}

constexpr FamilyInfo qwen2() {
  FamilyInfo family = like_llama(Family::qwen2, "qwen2",
                                 {.architecture = "Qwen2ForCausalLM",
                                  .names = HfNames::llama,
                                  .reads_attention_bias = false,
                                  .reads_mlp_bias = false,
                                  .has_qk_norm = false,
                                  .window = HfWindow::switched,
                                  .heads = HfHeads::any});
  family.qkv_bias = BiasRule::always;  // regardless of attention_bias
  family.out_bias = BiasRule::never;
  return family;
}

constexpr FamilyInfo qwen3() {
  return like_llama(Family::qwen3, "qwen3",
                    {.architecture = "Qwen3ForCausalLM",
                     .names = HfNames::llama,
                     .reads_attention_bias = true,
                     .reads_mlp_bias = false,
                     .has_qk_norm = true,
                     .window = HfWindow::switched,
                     .heads = HfHeads::any});
}

constexpr FamilyInfo qwen3_moe() {
  FamilyInfo family = qwen3();
  family.id = Family::qwen3_moe;
  family.name = "qwen3_moe";
  family.hf.architecture = "Qwen3MoeForCausalLM";
  family.hf.experts = HfExperts::qwen;
  return family;
}

constexpr FamilyInfo gemma2() {
  FamilyInfo family = like_llama(Family::gemma2, "gemma2",
                                 {.architecture = "Gemma2ForCausalLM",
                                  .names = HfNames::llama,
                                  .reads_attention_bias = true,
                                  .reads_mlp_bias = false,
                                  .has_qk_norm = false,
                                  .window = HfWindow::alternating,
                                  .heads = HfHeads::any,
                                  .has_softcaps = true});
  family.norm = NormKind::unit_rms_norm;
  family.mlp = MlpKind::geglu;
  family.post_norms = family.scaled_embedding = true;
  return family;
}

constexpr std::array kFamilies = {gpt2(), kLlama, mistral(), qwen2(), qwen3(), mixtral(), qwen3_moe(), gemma2()};

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
