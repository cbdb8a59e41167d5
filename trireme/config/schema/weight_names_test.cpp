#include "trireme/config/schema/weight_names.hpp"

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

}  // namespace
}  // namespace trireme
