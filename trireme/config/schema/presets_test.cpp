#include "trireme/config/schema/presets.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

using ::testing::ElementsAre;

TEST(Presets, AreTheseInThisOrder) {
  EXPECT_THAT(preset_names(), ElementsAre("tiny-llama", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "gpt3-175b",
                                          "llama2-7b", "llama2-13b", "llama2-70b", "llama3-debug", "llama3-8b",
                                          "llama3-70b", "llama3.1-8b", "llama3.1-70b", "llama3-405b", "llama3.2-1b",
                                          "llama3.2-3b", "qwen3-0.6b", "mixtral-8x7b", "gemma2-2b", "gemma2-9b"));
  EXPECT_FALSE(find_preset("llama4").has_value());
  EXPECT_FALSE(find_preset("").has_value());
}

/// Values from the public config.json of each model; the sizes are also checked through the counts.
TEST(Presets, HaveThePublicNumbers) {
  struct Row {
    const char *preset, *key, *value;
  };
  const Row rows[] = {
      {"tiny-llama", "model.hidden_size", "128"},
      {"tiny-llama", "model.num_hidden_layers", "4"},
      {"tiny-llama", "model.num_attention_heads", "4"},
      {"tiny-llama", "model.num_key_value_heads", "4"},
      {"tiny-llama", "model.head_dim", "32"},
      {"tiny-llama", "model.intermediate_size", "384"},
      {"tiny-llama", "model.vocab_size", "512"},
      {"tiny-llama", "model.tie_word_embeddings", "true"},
      {"tiny-llama", "model.norm_eps", "1e-05"},
      {"tiny-llama", "model.rope_theta", "10000.0"},
      {"gpt2", "model.model_type", "\"gpt2\""},
      {"gpt2", "model.hidden_act", "\"gelu_new\""},
      {"gpt2", "model.max_position_embeddings", "1024"},
      {"gpt2", "model.resid_pdrop", "0.0"},
      {"gpt2-xl", "model.num_attention_heads", "25"},
      {"gpt3-175b", "model.num_hidden_layers", "96"},
      {"gpt3-175b", "model.hidden_size", "12288"},
      {"gpt3-175b", "model.max_position_embeddings", "2048"},
      {"llama3-8b", "model.rope_theta", "5e+05"},
      {"llama3-8b", "model.max_position_embeddings", "8192"},
      {"llama3-8b", "model.num_key_value_heads", "8"},
      {"llama3-8b", "model.vocab_size", "128256"},
      {"llama3-8b", "model.rope_scaling.rope_type", "\"\""},
      {"llama3-70b", "model.intermediate_size", "28672"},
      {"llama3.1-8b", "model.rope_scaling.factor", "8.0"},
      {"llama3-debug", "model.intermediate_size", "768"},
      {"llama3-debug", "model.num_key_value_heads", "16"},
      {"llama2-7b", "model.intermediate_size", "11008"},
      {"llama3-405b", "model.num_hidden_layers", "126"},
      {"llama3-405b", "model.intermediate_size", "53248"},
      {"llama3-405b", "model.rope_scaling.factor", "8.0"},
      {"llama3.2-1b", "model.head_dim", "64"},
      {"llama3.2-1b", "model.rope_scaling.rope_type", "\"llama3\""},
      {"llama3.2-1b", "model.rope_scaling.factor", "32.0"},
      {"llama3.2-1b", "model.rope_scaling.original_max_position_embeddings", "8192"},
      {"llama3.2-3b", "model.head_dim", "128"},
      {"llama3.2-3b", "model.max_position_embeddings", "131072"},
      {"qwen3-0.6b", "model.qk_norm", "true"},
      {"qwen3-0.6b", "model.head_dim", "128"},
      {"qwen3-0.6b", "model.norm_eps", "1e-06"},
      {"qwen3-0.6b", "model.rope_theta", "1e+06"},
      {"mixtral-8x7b", "model.num_local_experts", "8"},
      {"mixtral-8x7b", "model.num_experts_per_tok", "2"},
      {"mixtral-8x7b", "model.router_aux_loss_coef", "0.02"},
      {"mixtral-8x7b", "model.norm_eps", "1e-05"},
  };
  for (const Row& row : rows) {
    Config config;
    config.model = find_preset(row.preset).value();
    EXPECT_EQ(value_of(config, row.key), row.value) << row.preset << " " << row.key;
  }
}

TEST(Presets, PassAllRules) {
  for (const std::string& name : preset_names())
    EXPECT_EQ(error_of("model.preset = \"" + name + "\""), "no error") << name;
}

TEST(Presets, HaveTheNamesOfTorchtitan) {
  EXPECT_EQ(torchtitan_preset("llama3", "8B"), "llama3.1-8b");
  EXPECT_EQ(torchtitan_preset("llama3", "405B"), "llama3-405b");
  EXPECT_EQ(torchtitan_preset("qwen3", "0.6B"), "qwen3-0.6b");
  EXPECT_EQ(torchtitan_preset("llama3", "debugmodel"), "llama3-debug");
  EXPECT_EQ(torchtitan_preset("llama2", "7B"), "llama2-7b");
  EXPECT_EQ(torchtitan_preset("llama3", "9B"), "");
}

}  // namespace
}  // namespace trireme::config
