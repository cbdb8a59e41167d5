// The table of parameters without torch against what the layers declare.
#include "trireme/describe/parameter_placement.hpp"

#include <map>

#include <gtest/gtest.h>

#include "trireme/describe/weight_names.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/testing/model_helpers.hpp"
#include "trireme/testing/nn_helpers.hpp"

namespace trireme {
namespace {

void expect_same_as_decoder(const ModelConfig& m) {
  on_tp(2, [&](Mesh& mesh) {
    const Decoder decoder(m, {mesh});
    std::map<std::string, ParamSpec> declared;
    for (const Param& param : params_of(decoder)) declared[param.name] = param.spec;
    const std::vector<ParameterShape> table = parameter_shapes(m);
    EXPECT_EQ(table.size(), declared.size()) << m.model_type;
    for (const auto& [name, shape] : table) {
      ASSERT_TRUE(declared.contains(name)) << m.model_type << " " << name;
      EXPECT_EQ(shape, declared[name].shape) << m.model_type << " " << name;
      EXPECT_EQ(parameter_placement(m, name), declared[name].placement) << m.model_type << " " << name;
    }
  });
}

TEST(ParameterPlacement, IsThatOfTheDecoder) {
  for (const char* family : {"gpt2", "llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe"})
    for (const bool tied : {false, true})
      for (const bool bias : {false, true}) {
        ModelConfig m = small_model(family);
        m.tie_word_embeddings = tied;
        m.attention_bias = bias;
        expect_same_as_decoder(m);
      }
  ModelConfig deepseek = small_model("qwen3_moe");
  deepseek.router_bias_update_rate = 1e-3;
  deepseek.shared_expert_intermediate_size = 12;
  expect_same_as_decoder(deepseek);
}

}  // namespace
}  // namespace trireme
