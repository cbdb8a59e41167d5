#include "trireme/describe/parameters.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/presets.hpp"
#include "trireme/describe/weight_names.hpp"

namespace trireme {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

ModelConfig small_qwen2() {
  ModelConfig model;
  model.model_type = "qwen2";
  model.hidden_size = 16;
  model.num_hidden_layers = 1;
  model.num_attention_heads = 4;
  model.num_key_value_heads = 2;
  model.head_dim = 3;
  model.intermediate_size = 40;
  model.vocab_size = 50;
  return model;
}

TEST(ParameterNames, EachOnceAndLayerByLayer) {
  ModelConfig model = *config::find_preset("tiny-llama");
  model.num_hidden_layers = 1;
  EXPECT_THAT(parameter_names(model),
              ElementsAre("embedding.weight", "layers.0.attention_norm.weight", "layers.0.attention.qkv.weight",
                          "layers.0.attention.out.weight", "layers.0.mlp_norm.weight", "layers.0.mlp.gate_up.weight",
                          "layers.0.mlp.down.weight", "norm.weight"));
}

TEST(AllParameters, HaveTheShapesOfTheLayers) {
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const Parameter& parameter : all_parameters(small_qwen2()))
    shapes.emplace_back(parameter.name, parameter.spec.shape);
  EXPECT_THAT(
      shapes,
      ElementsAre(Pair("embedding.weight", Shape{50, 16}), Pair("layers.0.attention_norm.weight", Shape{16}),
                  Pair("layers.0.attention.qkv.weight", Shape{24, 16}), Pair("layers.0.attention.qkv.bias", Shape{24}),
                  Pair("layers.0.attention.out.weight", Shape{16, 12}), Pair("layers.0.mlp_norm.weight", Shape{16}),
                  Pair("layers.0.mlp.gate_up.weight", Shape{80, 16}), Pair("layers.0.mlp.down.weight", Shape{16, 40}),
                  Pair("norm.weight", Shape{16}), Pair("head.weight", Shape{50, 16})));
}

/// Their tensors are all rows of ours, once.
TEST(AllParameters, ConsistOfTheirTensors) {
  for (const char* preset : {"gpt2", "tiny-llama", "llama3-8b", "qwen3-0.6b"})
    for (const Parameter& parameter : all_parameters(*config::find_preset(preset))) {
      std::int64_t rows = 0;
      for (const TheirTensor& tensor : parameter.theirs) rows += tensor.rows;
      EXPECT_EQ(rows, parameter.spec.shape[0]) << preset << " " << parameter.name;
    }
}

TEST(ParameterNamed, IsTheSameAsInTheList) {
  ModelConfig model = small_qwen2();
  model.num_hidden_layers = 12;
  for (const Parameter& listed : all_parameters(model)) {
    const Parameter found = parameter_named(model, listed.name);
    EXPECT_EQ(found.name, listed.name);
    EXPECT_EQ(found.spec.shape, listed.spec.shape);
    EXPECT_EQ(found.spec.placement, listed.spec.placement);
    ASSERT_EQ(found.theirs.size(), listed.theirs.size());
    EXPECT_EQ(found.theirs[0].name, listed.theirs[0].name);
  }
  for (const char* name : {"layers.0.experts.weight", "layers.12.mlp.down.weight", "layers.", "layers.1", "",
                           "layers.-1.mlp.down.weight", "mlp.down.weight"})
    EXPECT_THROW(parameter_named(model, name), ConfigError) << name;
}

TEST(WeightNames, NumberTheExperts) {
  ModelConfig model = small_qwen2();
  model.model_type = "qwen3_moe";
  model.num_local_experts = 2;
  model.tie_word_embeddings = true;
  model.moe_intermediate_size = 5;
  std::vector<std::string> names;
  for (const WeightName& name : weight_names(model))
    if (name.ours.find("expert") != std::string::npos) names.push_back(name.theirs);
  EXPECT_THAT(
      names,
      ElementsAre("model.layers.0.mlp.experts.0.gate_proj.weight", "model.layers.0.mlp.experts.0.up_proj.weight",
                  "model.layers.0.mlp.experts.1.gate_proj.weight", "model.layers.0.mlp.experts.1.up_proj.weight",
                  "model.layers.0.mlp.experts.0.down_proj.weight", "model.layers.0.mlp.experts.1.down_proj.weight"));
}

}  // namespace
}  // namespace trireme
