#include "trireme/config/translate/hf_config.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/schema/presets.hpp"
#include "trireme/describe/counts.hpp"
#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

LoadedConfig loaded_from(const std::string& folder) {
  return load_good("model.hf = \"" + testdata_path("hf/" + folder) + "\"\ntraining.seq_len = 128");
}

std::string value_in(const std::string& json, const std::string& key) {
  for (const Setting& s : parse_hf_config("config.json", json).settings)
    if (s.path == "model." + key) return str(s.value);
  return "";
}

std::string hf_refusal(const std::string& json) {
  return message_of<ConfigError>([&] { parse_hf_config("config.json", json); });
}

/// The presets have the values of the same files.
TEST(HfConfig, OfAPresetIsThePreset) {
  for (const auto& [folder, preset] :
       std::vector<std::pair<std::string, std::string>>{{"gpt2", "gpt2"},
                                                        {"llama3.2-1b", "llama3.2-1b"},
                                                        {"qwen3-0.6b", "qwen3-0.6b"},
                                                        {"mixtral-8x7b", "mixtral-8x7b"}}) {
    LoadedConfig ours = load_good("model.preset = \"" + preset + "\"\ntraining.seq_len = 128"),
                 theirs = loaded_from(folder);
    ours.config.model.preset = theirs.config.model.hf = "";
    // The preset is without dropout; GPT-2's folder has 0.1.
    EXPECT_EQ(theirs.config.model.resid_pdrop, folder == "gpt2" ? 0.1 : 0);
    theirs.config.model.embd_pdrop = theirs.config.model.resid_pdrop = theirs.config.model.attention_dropout = 0;
    EXPECT_EQ(values_of(theirs.config), values_of(ours.config)) << folder;
  }
}

/// Published: Mistral 7B 7,241,732,096; Qwen2 7B 7,615,616,512.
TEST(HfConfig, HasThePublishedNumberOfParameters) {
  EXPECT_EQ(count_parameters(loaded_from("mistral-7b").config.model).total(), 7'241'732'096);
  EXPECT_EQ(count_parameters(loaded_from("qwen2-7b").config.model).total(), 7'615'616'512);
  EXPECT_EQ(loaded_from("mistral-7b").config.model.sliding_window, 4096);
  EXPECT_EQ(loaded_from("qwen2-7b").config.model.sliding_window, 0);
}

TEST(HfConfig, AFileOrItsFolder) {
  EXPECT_EQ(read_hf_config(testdata_path("hf/gpt2")).settings.size(),
            read_hf_config(testdata_path("hf/gpt2/config.json")).settings.size());
  EXPECT_THAT(message_of<ConfigError>([] { read_hf_config("no/such"); }), HasSubstr("cannot open no/such: "));
  EXPECT_THAT(message_of<ConfigError>([] { read_hf_config(std::string(5000, 'x')); }), HasSubstr("cannot open xxx"));
  TempFolder empty;
  EXPECT_THAT(message_of<ConfigError>([&] { read_hf_config(empty.path().string()); }),
              HasSubstr("/config.json: No such file"));
}

TEST(HfConfig, SilenceMeansWhatTheFamilyAssumes) {
  struct Row {
    std::string json, key, value;
  };
  const Row rows[] = {
      {R"({"model_type": "gpt2"})", "tie_word_embeddings", "true"},
      {R"({"model_type": "gpt2"})", "resid_pdrop", "0.1"},
      {R"({"model_type": "gpt2", "tie_word_embeddings": false})", "tie_word_embeddings", "false"},
      {R"({"model_type": "llama"})", "norm_eps", "1e-06"},
      {R"({"model_type": "llama", "rms_norm_eps": 1e-5})", "norm_eps", "1e-05"},
      {R"({"model_type": "qwen3"})", "qk_norm", "true"},
      {R"({"model_type": "qwen3"})", "head_dim", "128"},
      {R"({"model_type": "qwen3", "head_dim": null})", "head_dim", "0"},
      {R"({"model_type": "mixtral"})", "num_local_experts", "8"},
      {R"({"model_type": "mixtral"})", "rope_theta", "1e+06"},
      {R"({"model_type": "mistral"})", "sliding_window", "4096"},
      {R"({"model_type": "mistral", "sliding_window": null})", "sliding_window", "0"},
      {R"({"model_type": "mistral", "num_key_value_heads": null})", "num_key_value_heads", "0"},
      {R"({"model_type": "qwen2", "sliding_window": 4096})", "sliding_window", "0"},
      {R"({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": true, "max_window_layers": 0})",
       "sliding_window", "4096"},
  };
  for (const Row& row : rows) EXPECT_EQ(value_in(row.json, row.key), row.value) << row.json;
}

TEST(HfConfig, RopeOldAndNew) {
  EXPECT_EQ(
      value_in(R"({"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2}})", "rope_scaling.rope_type"),
      "\"linear\"");
  EXPECT_EQ(
      value_in(R"({"model_type": "llama", "rope_parameters": {"rope_type": "llama3", "rope_theta": 5}})", "rope_theta"),
      "5");
  EXPECT_EQ(value_in(R"({"model_type": "llama", "rope_parameters": {"rope_type": "llama3", "rope_theta": 5}})",
                     "rope_scaling.rope_type"),
            "\"llama3\"");
  EXPECT_EQ(hf_refusal(R"({"model_type": "llama", "rope_scaling": {"rope_type": "longrope", "short_factor": [1]}})"),
            "config.json: rope_scaling.short_factor = [1] is a kind of RoPE that is not supported");
  const std::string longrope = R"({"model_type": "llama", "rope_scaling": {"rope_type": "longrope"}})";
  TempFolder folder;
  std::ofstream(folder / "config.json") << longrope;
  EXPECT_THAT(
      error_of(std::string(kTiny) + "model.hf = '" + folder.path().string() + "'"),
      HasSubstr(
          "model.rope_scaling.rope_type = \"longrope\" is not one of: \"\", default, linear, dynamic, yarn, llama3"));
}

/// Those of Qwen2.5 with YaRN, and nulls as transformers writes them.
TEST(HfConfig, Yarn) {
  const char* json = R"({"model_type": "qwen2", "rope_scaling": {"type": "yarn", "factor": 4.0, "beta_fast": 16,
      "original_max_position_embeddings": 32768, "truncate": false, "attention_factor": null, "mscale": 0.7}})";
  const std::pair<const char*, const char*> rows[] = {
      {"rope_type", "\"yarn\""}, {"factor", "4.0"}, {"beta_fast", "16"},
      {"truncate", "false"},     {"mscale", "0.7"}, {"original_max_position_embeddings", "32768"}};
  for (const auto& [key, value] : rows) EXPECT_EQ(value_in(json, text("rope_scaling.", key)), value) << key;
}

TEST(HfConfig, WhatChangesTheMathsIsRefused) {
  EXPECT_EQ(hf_refusal(R"({"model_type": "llama", "mlp_bias": true})"),
            "config.json: mlp_bias = true is not supported, only false");
  EXPECT_EQ(hf_refusal(R"({"model_type": "gpt2", "scale_attn_weights": false})"),
            "config.json: scale_attn_weights = false is not supported, only true");
  EXPECT_EQ(hf_refusal(R"({"model_type": "llama", "partial_rotary_factor": 0.5})"),
            "config.json: partial_rotary_factor = 0.5 is not supported, only 1.0");
  EXPECT_EQ(hf_refusal(R"({"model_type": "llama", "partial_rotary_factor": 1})"), "no error");
  EXPECT_EQ(hf_refusal(R"({"model_type": "gemma9"})"),
            "config.json: model_type = \"gemma9\" is not one of the supported families: gemma2, gpt2, llama, mistral, "
            "mixtral, qwen2, qwen3, qwen3_moe");
  EXPECT_EQ(hf_refusal(R"({"model_type": "qwen3_moe", "decoder_sparse_step": 2})"),
            "config.json: decoder_sparse_step = 2 is not supported, only 1");
  EXPECT_EQ(hf_refusal(R"({"model_type": "qwen3_moe", "mlp_only_layers": [0]})"),
            "config.json: mlp_only_layers = [0] is not supported, only []");
  EXPECT_EQ(hf_refusal(R"({"model_type": "qwen3_moe", "mlp_only_layers": [], "decoder_sparse_step": 1})"), "no error");
  EXPECT_EQ(hf_refusal(R"({"model_type": "mixtral", "router_jitter_noise": 0.1})"),
            "config.json: router_jitter_noise = 0.1 is not supported, only 0.0");
  EXPECT_EQ(hf_refusal("{}"), "config.json has no model_type: is this a model's config.json?");
  EXPECT_THAT(hf_refusal(R"({"model_type": "qwen2", "use_sliding_window": true, "max_window_layers": 4})"),
              HasSubstr("max_window_layers = 4 is not supported, only 0"));
  EXPECT_THAT(hf_refusal(R"({"model_type": "qwen3", "layer_types": ["full_attention", "sliding_attention"]})"),
              HasSubstr("layers of several kinds are not supported"));
  EXPECT_EQ(hf_refusal(R"({"model_type": "qwen3", "layer_types": ["full_attention", "full_attention"]})"), "no error");
}

TEST(HfConfig, TheRestIsListed) {
  const HfConfig gpt2 = read_hf_config(testdata_path("hf/gpt2"));
  EXPECT_THAT(gpt2.ignored, Contains("n_ctx"));
  EXPECT_THAT(gpt2.ignored, Contains("architectures"));
  EXPECT_THAT(gpt2.ignored, Not(Contains("n_embd")));
  // Names that are keys of ours but not of config.json.
  EXPECT_THAT(parse_hf_config("x", R"({"model_type": "llama", "hf": "y", "preset": "z", "init": "hf:w", "bf16": true})")
                  .ignored,
              ::testing::ElementsAre("bf16", "hf", "init", "preset"));
}

}  // namespace
}  // namespace trireme::config
