#include "trireme/model/check_parameters.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/testing/model_helpers.hpp"
#include "trireme/testing/nn_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using ::testing::HasSubstr;

/// Every decoder checks itself.
TEST(CheckParameters, AcceptsTheDecoderOfEveryFamily) {
  const auto make = [](const ModelConfig& m) { on_tp(2, [&](Mesh& mesh) { const Decoder decoder(m, {mesh}); }); };
  for (const char* family : {"gpt2", "llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe", "gemma2"})
    for (const bool tied : {false, true})
      for (const bool bias : {false, true}) {
        ModelConfig m = small_model(family);
        m.tie_word_embeddings = tied;
        m.attention_bias = bias;
        EXPECT_NO_THROW(make(m)) << family;
      }
  ModelConfig deepseek = small_model("qwen3_moe");
  deepseek.router_bias_update_rate = 1e-3;
  deepseek.shared_expert_intermediate_size = 12;
  EXPECT_NO_THROW(make(deepseek));
}

TEST(CheckParameters, NamesWhatDiffers) {
  const ModelConfig m = small_model("llama");
  on_tp(1, [&](Mesh& mesh) {
    const std::vector<Param> good = params_of(Decoder(m, {mesh}));
    const auto message = [&](auto&& change) {
      std::vector<Param> params = good;
      change(params);
      return message_of<InternalError>([&] { check_parameters(params, m, DecoderPart::whole(m)); });
    };
    EXPECT_THAT(message([](auto& params) { params[3].spec.shape[0] += 1; }),
                HasSubstr(good[3].name + ": its layer declares another shape"));
    EXPECT_THAT(message([](auto& params) { params[2].spec.placement = {}; }),
                HasSubstr(good[2].name + ": its layer declares another placement"));
    EXPECT_THAT(message([](auto& params) { params[1].spec.fill = Fill::zeros; }),
                HasSubstr(good[1].name + ": its layer declares other initial values"));
    EXPECT_THAT(message([](auto& params) { params.pop_back(); }), HasSubstr("no layer declares it"));
    EXPECT_THAT(message([](auto& params) { params[2].name = "layers.0.attention.bias"; }),
                HasSubstr("layers.0.attention.bias: a layer declares it"));
  });
}

}  // namespace
}  // namespace trireme
