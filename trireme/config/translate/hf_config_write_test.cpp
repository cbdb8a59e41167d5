#include "trireme/config/translate/hf_config_write.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "trireme/config/read/derive.hpp"
#include "trireme/config/schema/presets.hpp"
#include "trireme/config/translate/hf_config.hpp"
#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ModelConfig derived(const ModelConfig& model) {
  LoadedConfig loaded;
  loaded.config.model = model;
  derive(loaded);
  return loaded.config.model;
}

/// Every key of config.json with its value.
std::map<std::string, std::string> model_values(const ModelConfig& model) {
  Config config;
  config.model = model;
  std::map<std::string, std::string> values = values_of(config);
  std::erase_if(values, [](const auto& item) { return !item.first.starts_with("model."); });
  for (const char* ours : {"model.preset", "model.hf", "model.init", "model.dtype"}) values.erase(ours);
  return values;
}

/// Reads it as a run does.
ModelConfig read_back(const std::string& json) {
  const TempFolder folder;
  std::ofstream(folder / "config.json") << json;
  LoadedConfig loaded = load("model.hf = '" + folder.path().string() + "'");
  EXPECT_EQ(loaded.violations.size(), 0U) << json;
  derive(loaded);
  return loaded.config.model;
}

const std::vector<std::string> kFamilies = {"gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma2"};

/// A random model that the family supports, without options that it does not have.
ModelConfig random_model(const std::string& family, Dice& dice) {
  const bool gpt2 = family == "gpt2", qwen3 = family == "qwen3";
  const auto small = [&] { return dice.pick(1, 999'999) / 1e6; };
  ModelConfig m;
  m.model_type = family;
  m.num_key_value_heads = dice.pick(1, 8);
  m.num_attention_heads = m.num_key_value_heads * (gpt2 ? 1 : dice.pick(1, 8));
  m.hidden_size = m.num_attention_heads * dice.pick(1, 300);
  m.head_dim = gpt2 ? m.hidden_size / m.num_attention_heads : 2 * dice.pick(1, 100);
  m.num_hidden_layers = dice.pick(1, 200);
  m.intermediate_size = dice.pick(1, 100'000);
  m.vocab_size = dice.pick(1, 1'000'000);
  m.max_position_embeddings = dice.pick(1, 1 << 20);
  m.hidden_act = dice.one_of<std::string>({"silu", "gelu", "gelu_new", "gelu_pytorch_tanh"});
  m.norm_eps = small();
  m.initializer_range = small();
  m.tie_word_embeddings = dice.toss();
  m.attention_dropout = dice.toss() ? 0 : small();
  m.embd_pdrop = dice.toss() ? 0 : small();
  m.resid_pdrop = dice.toss() ? 0 : small();
  if (gpt2) return m;
  m.rope_theta = dice.toss() ? dice.pick(1, 100'000'000) : 1e15 * small();
  m.rope_scaling.rope_type = dice.one_of<std::string>({"", "default", "linear", "dynamic", "yarn", "llama3"});
  if (m.rope_scaling.rope_type == "linear" || m.rope_scaling.rope_type == "dynamic")
    m.rope_scaling.factor = dice.pick(1, 100);
  if (m.rope_scaling.rope_type == "llama3")
    m.rope_scaling = {"llama3", 100 * small(), small(), 1 + small(), dice.pick(1, 1 << 20)};
  if (m.rope_scaling.rope_type == "yarn")
    m.rope_scaling = {.rope_type = "yarn",
                      .factor = 100 * small(),
                      .original_max_position_embeddings = dice.pick(1, 1 << 20),
                      .beta_fast = 1 + small(),
                      .beta_slow = small(),
                      .attention_factor = dice.toss() ? 0 : small(),
                      .mscale = dice.toss() ? 0 : small(),
                      .mscale_all_dim = dice.toss() ? 0 : small(),
                      .truncate = dice.toss()};
  m.qk_norm = qwen3;
  m.attention_bias = (family == "llama" || qwen3 || family == "gemma2") && dice.toss();
  m.sliding_window = family != "llama" && dice.toss() ? dice.pick(1, 1 << 20) : 0;
  if (family == "gemma2") {
    m.sliding_window_pattern = 2;
    m.query_pre_attn_scalar = dice.pick(1, 1000);
    m.attn_logit_softcapping = dice.toss() ? 0 : small();
    m.final_logit_softcapping = dice.toss() ? 0 : small();
  }
  return m;
}

TEST(HfConfigWrite, OfEveryPresetIsReadBack) {
  int written = 0;
  for (const std::string& name : preset_names()) {
    const ModelConfig model = derived(*find_preset(name));
    EXPECT_EQ(model_values(read_back(hf_config_json(model, "bfloat16"))), model_values(model)) << name;
    ++written;
  }
  EXPECT_EQ(written, std::ssize(preset_names()));
}

RC_GTEST_PROP(HfConfigWrite, OfAnyModelIsReadBack, ()) {
  Dice dice;
  const ModelConfig model = derived(random_model(dice.one_of(kFamilies), dice));
  HfTokenIds tokens;
  if (dice.toss()) tokens = {dice.pick(0, 100), dice.pick(0, 100), {}};
  RC_ASSERT(model_values(read_back(hf_config_json(model, "float32", tokens))) == model_values(model));
}

/// The full text of one config.json.
TEST(HfConfigWrite, LooksLikeThis) {
  ModelConfig model = derived(*find_preset("llama3.2-1b"));
  EXPECT_EQ(hf_config_json(model, "bfloat16", {128000, 128001, {}}), R"({
  "architectures": [
    "LlamaForCausalLM"
  ],
  "model_type": "llama",
  "dtype": "bfloat16",
  "torch_dtype": "bfloat16",
  "vocab_size": 128256,
  "hidden_size": 2048,
  "num_hidden_layers": 16,
  "num_attention_heads": 32,
  "num_key_value_heads": 8,
  "head_dim": 64,
  "intermediate_size": 8192,
  "max_position_embeddings": 131072,
  "hidden_act": "silu",
  "rms_norm_eps": 1e-05,
  "rope_theta": 500000.0,
  "rope_scaling": {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192
  },
  "attention_bias": false,
  "mlp_bias": false,
  "attention_dropout": 0.0,
  "initializer_range": 0.02,
  "tie_word_embeddings": true,
  "use_cache": true,
  "bos_token_id": 128000,
  "eos_token_id": 128001,
  "pad_token_id": null
}
)");
  EXPECT_THAT(hf_config_json(derived(*find_preset("gpt2")), "float32"),
              AllOf(HasSubstr("\"layer_norm_epsilon\": 1e-05"), HasSubstr("\"n_inner\": 3072"),
                    HasSubstr("\"eos_token_id\": null"), Not(HasSubstr("rope"))));
}

TEST(HfConfigWrite, WhatTransformersWouldComputeOtherwiseIsRefused) {
  Dice dice(7);
  const auto refusal = [&](const std::string& family, const std::function<void(ModelConfig&)>& change) {
    ModelConfig model = random_model(family, dice);
    change(model);
    return message_of<ConfigError>([&] { hf_config_json(model, "float32"); });
  };
  for (const std::string& family : kFamilies) {
    EXPECT_EQ(refusal(family, [](ModelConfig&) {}), "no error");
    EXPECT_THAT(refusal(family, [](ModelConfig& m) { m.qk_norm = !m.qk_norm; }),
                HasSubstr("this model cannot be written as a " + family + " of transformers\n  model.qk_norm = "));
    EXPECT_THAT(refusal(family, [](ModelConfig& m) { m.num_local_experts = 8; }),
                HasSubstr("model.num_local_experts = 8"));
  }
  for (const char* family : {"gpt2", "llama"})
    EXPECT_THAT(refusal(family, [](ModelConfig& m) { m.sliding_window = 64; }),
                HasSubstr("model.sliding_window = 64: only"));
  EXPECT_THAT(refusal("mistral", [](ModelConfig& m) { m.attention_bias = true; }),
              HasSubstr("model.attention_bias = true"));
  EXPECT_THAT(refusal("llama", [](ModelConfig& m) { m.num_attention_heads = 3, m.hidden_size = 64; }),
              HasSubstr("model.hidden_size = 64: it must be a multiple of num_attention_heads = 3"));
  EXPECT_THAT(
      refusal("gpt2",
              [](ModelConfig& m) {
                m.num_attention_heads = 4, m.num_key_value_heads = 2, m.head_dim = 8, m.hidden_size = 64;
              }),
      AllOf(HasSubstr("model.num_key_value_heads = 2"), HasSubstr("model.head_dim = 8"), HasSubstr("\n  fix: ")));
  EXPECT_EQ(
      refusal("llama", [](ModelConfig& m) { m.model_type = "gemma9"; }),
      "model.model_type = \"gemma9\" cannot be written for transformers, only gpt2, llama, mistral, qwen2, qwen3, "
      "mixtral, qwen3_moe, gemma2");
  const std::pair<const char*, void (*)(ModelConfig&)> of_experts[] = {
      {"scoring_func = \"sigmoid\"", [](ModelConfig& m) { m.scoring_func = "sigmoid"; }},
      {"routed_scaling_factor = 2.5", [](ModelConfig& m) { m.routed_scaling_factor = 2.5; }},
      {"expert_capacity_factor = 1.5", [](ModelConfig& m) { m.expert_capacity_factor = 1.5; }},
      {"router_bias_update_rate = 0.5", [](ModelConfig& m) { m.router_bias_update_rate = 0.5; }},
      {"shared_expert_intermediate_size = 8", [](ModelConfig& m) { m.shared_expert_intermediate_size = 8; }},
  };
  for (const auto& [told, change] : of_experts)
    for (const char* family : {"mixtral", "qwen3_moe"})
      EXPECT_THAT(refusal(family, change), HasSubstr(std::string("\n  model.") + told));
  EXPECT_THAT(refusal("mixtral", [](ModelConfig& m) { m.norm_topk_prob = false; }),
              HasSubstr("norm_topk_prob = false: it always normalises them"));
  EXPECT_THAT(refusal("mixtral", [](ModelConfig& m) { m.moe_intermediate_size = 7; }),
              HasSubstr("moe_intermediate_size = 7: that of its experts is intermediate_size"));
  EXPECT_THROW(hf_config_json(*find_preset("gpt2"), "float32"), InternalError) << "not derived";
}

/// Models that transformers lacks are written for ourselves, with a type that it refuses.
TEST(OwnConfig, IsReadBackHereAndNowhereElse) {
  ModelConfig m;
  m.hidden_size = 32;
  m.num_hidden_layers = 2;
  m.num_attention_heads = 3;
  m.head_dim = 12;
  m.intermediate_size = 48;
  m.vocab_size = 257;
  m.max_position_embeddings = 64;
  m.rope_scaling = {.rope_type = "llama3", .factor = 4, .original_max_position_embeddings = 16};
  m.sliding_window = 8;
  m.qk_norm = true;
  ModelConfig experts = m;
  experts.model_type = "qwen3_moe";
  experts.num_local_experts = 4;
  experts.num_experts_per_tok = 1;
  experts.moe_intermediate_size = 24;
  experts.shared_expert_intermediate_size = 16;
  experts.scoring_func = "sigmoid";
  experts.expert_capacity_factor = 1.5;
  experts.router_bias_update_rate = 0.001;
  for (const ModelConfig& model : {derived(m), derived(experts)}) {
    EXPECT_THAT(what_transformers_lacks(model, "float32"), HasSubstr("cannot be written as a " + model.model_type));
    const std::string json = own_config_json(model, "float32", {.bos = {}, .eos = 3, .pad = {}});
    EXPECT_THAT(json, AllOf(HasSubstr("\"model_type\": \"trireme_" + model.model_type + "\""),
                            HasSubstr("\"eos_token_id\": 3"), Not(HasSubstr("architectures"))));
    EXPECT_EQ(model_values(read_back(json)), model_values(model));
  }
}

}  // namespace
}  // namespace trireme::config
