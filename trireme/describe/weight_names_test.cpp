#include "trireme/describe/weight_names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/schema/presets.hpp"

namespace trireme {
namespace {

using ::testing::ElementsAre;

TEST(ParameterNames, EachOnceAndLayerByLayer) {
  ModelConfig model = *config::find_preset("tiny-llama");
  model.num_hidden_layers = 1;
  EXPECT_THAT(parameter_names(model),
              ElementsAre("embedding.weight", "layers.0.attention_norm.weight", "layers.0.attention.qkv.weight",
                          "layers.0.attention.out.weight", "layers.0.mlp_norm.weight", "layers.0.mlp.gate_up.weight",
                          "layers.0.mlp.down.weight", "norm.weight"));
}

TEST(ParameterShapes, AreThoseOfTheLayers) {
  ModelConfig model;
  model.model_type = "qwen2";
  model.hidden_size = 16;
  model.num_hidden_layers = 1;
  model.num_attention_heads = 4;
  model.num_key_value_heads = 2;
  model.head_dim = 3;
  model.intermediate_size = 40;
  model.vocab_size = 50;
  EXPECT_THAT(
      parameter_shapes(model),
      ElementsAre(
          ParameterShape{"embedding.weight", {50, 16}}, ParameterShape{"layers.0.attention_norm.weight", {16}},
          ParameterShape{"layers.0.attention.qkv.weight", {24, 16}},
          ParameterShape{"layers.0.attention.qkv.bias", {24}},
          ParameterShape{"layers.0.attention.out.weight", {16, 12}}, ParameterShape{"layers.0.mlp_norm.weight", {16}},
          ParameterShape{"layers.0.mlp.gate_up.weight", {80, 16}}, ParameterShape{"layers.0.mlp.down.weight", {16, 40}},
          ParameterShape{"norm.weight", {16}}, ParameterShape{"head.weight", {50, 16}}));
}

}  // namespace
}  // namespace trireme
