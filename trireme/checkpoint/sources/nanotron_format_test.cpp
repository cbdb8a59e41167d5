#include "trireme/checkpoint/sources/nanotron_format.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/sources/hf_source.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::checkpoint {
namespace {

using testing::HasSubstr;

TEST(NanotronFormat, NamesOfFiles) {
  const NanotronFile norm{.parameter = "weight"};
  const NanotronFile shard{.parameter = "bias", .is_shard = true, .pp_rank = 1, .pp = 2, .tp_rank = 3, .tp = 4};
  EXPECT_EQ(file_name(norm), "model_weight.safetensors");
  EXPECT_EQ(file_name(shard), "model_bias_pp-rank-1-of-2_tp-rank-3-of-4.safetensors");
  for (const NanotronFile& file : {norm, shard}) EXPECT_EQ(parse_nanotron_file(file_name(file)), file);
  for (const char* name :
       {"", "model_.safetensors", "weight.safetensors", "model_weight.safetensors.tmp", "model.safetensors",
        "model_weight_pp-rank-0-of-1.safetensors", "model_weight_pp-rank-2-of-2_tp-rank-0-of-1.safetensors",
        "model_weight_pp-rank-0-of-1_tp-rank-0-of-1_exp-rank-0-of-2.safetensors",
        "model_weight_pp-rank--1-of-1_tp-rank-0-of-1.safetensors",
        "model_weight_pp-rank-0-of-99999999999_tp-rank-0-of-1.safetensors",
        "model_weight_pp-rank-x-of-1_tp-rank-0-of-1.safetensors"})
    EXPECT_FALSE(parse_nanotron_file(name)) << name;
}

ModelConfig small_model(const std::string& family) {
  ModelConfig model;
  model.model_type = family;
  model.hidden_size = 16;
  model.num_hidden_layers = 2;
  model.num_attention_heads = 4;
  model.num_key_value_heads = 2;
  model.head_dim = 4;
  model.intermediate_size = 24;
  model.vocab_size = 10;
  return model;
}

TEST(NanotronFormat, ShardsOfFusedParameters) {
  const ModelConfig model = small_model("qwen2");
  const auto slices = [&](const std::string& name, const Shape& shape) {
    return str(
        sharded_info(*nanotron_placement(model, name), shape, Grid::dense({.tp = 2}), 1).local_global_slices_pairs);
  };
  EXPECT_EQ(slices("layers.0.attention.qkv.bias", {32}),
            "0,8,None#8,16,None;8,12,None#20,24,None;12,16,None#28,32,None");
  EXPECT_EQ(slices("layers.0.mlp.gate_up.weight", {48, 16}),
            "0,12,None|0,16,None#12,24,None|0,16,None;12,24,None|0,16,None#36,48,None|0,16,None");
  EXPECT_EQ(slices("layers.1.mlp.down.weight", {16, 24}), "0,16,None|0,12,None#0,16,None|12,24,None");
  EXPECT_EQ(slices("embedding.weight", {10, 16}), "0,5,None|0,16,None#5,10,None|0,16,None");
  EXPECT_FALSE(nanotron_placement(model, "layers.0.mlp_norm.weight"));
}

TEST(NanotronFormat, WhatItDoesNotHave) {
  check_for_nanotron(small_model("llama"), 2);
  const auto why = [](const ModelConfig& model, int tp) {
    return message_of<ConfigError>([&] { check_for_nanotron(model, tp); });
  };
  EXPECT_THAT(why(small_model("mistral"), 1), HasSubstr("it has llama and qwen2"));
  EXPECT_THAT(why(small_model("llama"), 4), HasSubstr("a divisor of num_key_value_heads = 2"));
  EXPECT_THAT(why(small_model("llama"), 0), HasSubstr("--tp 0"));
  ModelConfig wide = small_model("llama");
  wide.head_dim = 8;
  EXPECT_THAT(why(wide, 1), HasSubstr("head_dim = 8"));
}

TEST(NanotronFormat, TheModelComesBack) {
  for (const char* family : {"llama", "qwen2"}) {
    ModelConfig model = small_model(family);
    model.attention_bias = model.model_type == "qwen2";
    model.rope_theta = 5e5;
    model.tie_word_embeddings = true;
    const std::string theirs = nanotron_model_config(model, {.bos = 7, .eos = 8, .pad = std::nullopt});
    const std::string json = config_json_of_nanotron("model_config.json", theirs, "bfloat16");
    const ModelConfig back = model_of_config_json("config.json", json);
    EXPECT_EQ(back.model_type, family);
    EXPECT_EQ(back.num_key_value_heads, 2);
    EXPECT_EQ(back.head_dim, 4);
    EXPECT_EQ(back.rope_theta, 5e5);
    EXPECT_TRUE(back.tie_word_embeddings);
    EXPECT_THAT(json, HasSubstr("\"bos_token_id\": 7"));
  }
  for (const char* hostile : {"", "[]", "{", "{\"is_llama_config\": false}", "{\"is_llama_config\": true, \"x\": 3}"})
    EXPECT_THROW(config_json_of_nanotron("model_config.json", hostile, "float32"), CheckpointError) << hostile;
}

}  // namespace
}  // namespace trireme::checkpoint
