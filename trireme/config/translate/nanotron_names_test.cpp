#include "trireme/config/translate/nanotron_names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/name_pattern.hpp"
#include "trireme/describe/parameters.hpp"
#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ModelConfig two_layers(bool tied) {
  return load_good(text("[model]\nhidden_size = 64\nnum_hidden_layers = 2\nnum_attention_heads = 4\nvocab_size = 99\n",
                        "intermediate_size = 128\nmodel_type = \"qwen3\"\nqk_norm = true\ntie_word_embeddings = ",
                        tied ? "true" : "false"))
      .config.model;
}

/// The parameters of ours that these expressions of nanotron exclude.
std::vector<std::string> excluded(const std::vector<std::string>& expressions, const ModelConfig& model) {
  const std::vector<NamePattern> patterns = name_patterns(translate_no_decay(expressions, model).patterns);
  std::vector<std::string> names = parameter_names(model);
  std::erase_if(names, [&](const std::string& name) { return !matches_any(patterns, name); });
  return names;
}

TEST(NanotronNames, ExpressionsOfTheirNamesExcludeOurParameters) {
  const ModelConfig model = two_layers(false);
  EXPECT_THAT(excluded({".*token_embedding.*"}, model), ElementsAre("embedding.weight"));
  EXPECT_THAT(excluded({".*lm_head.*"}, model), ElementsAre("head.weight"));
  EXPECT_THAT(excluded({".*lm_head.*"}, two_layers(true)), ElementsAre("embedding.weight"));
  EXPECT_THAT(excluded({"model\\.decoder\\.1\\..*norm.*"}, model),
              ElementsAre("layers.1.attention_norm.weight", "layers.1.attention.q_norm.weight",
                          "layers.1.attention.k_norm.weight", "layers.1.mlp_norm.weight"));
  EXPECT_EQ(excluded({".*norm.*"}, model).size(), 9U);
  EXPECT_THAT(excluded({"norm"}, model), IsEmpty());  // re.match: from the beginning
  EXPECT_EQ(excluded({".*"}, model), parameter_names(model));
}

TEST(NanotronNames, EveryNameHasACounterpart) {
  const ModelConfig model = two_layers(false);
  std::vector<std::string> seen;
  for (const std::string& name : parameter_names(model))
    if (name.ends_with(".weight")) seen.push_back(name);
  EXPECT_EQ(excluded({"model.*weight"}, model), seen);
}

TEST(NanotronNames, WhatMatchesNothingIsTold) {
  EXPECT_THAT(translate_no_decay({"embed_tokens", ".*token_embedding.*"}, two_layers(false)).unmatched,
              ElementsAre("embed_tokens"));
  EXPECT_THAT(message_of<ConfigError>([] { translate_no_decay({"(x"}, two_layers(false)); }), HasSubstr("\"(x\""));
}

TEST(NanotronNames, OfOurParameters) {
  EXPECT_EQ(nanotron_name("embedding.weight"), "model.token_position_embeddings.pp_block.token_embedding.weight");
  EXPECT_EQ(nanotron_name("layers.12.attention.qkv.bias"), "model.decoder.12.pp_block.attn.qkv_proj.bias");
  EXPECT_EQ(nanotron_name("norm.weight"), "model.final_layer_norm.pp_block.weight");
  EXPECT_THROW(nanotron_name("positions.weight"), InternalError);
  for (const std::string& name : parameter_names(two_layers(false))) EXPECT_NE(nanotron_name(name), "");
}

}  // namespace
}  // namespace trireme::config
