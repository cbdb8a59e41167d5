// A kind of attention that the library does not have, as one class: latent attention, with the layers of Llama.
#include <cmath>

#include <ATen/ops/scaled_dot_product_attention.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/model/register_family.hpp"
#include "trireme/parallel/tensor/linear.hpp"
#include "trireme/testing/test_helpers.hpp"
#include "trireme/testing/verify_config.hpp"
#include "trireme/verify/verify.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

/// Keys and values of all heads are made from a few latent features, of which every rank of tp computes all.
class LatentAttention final : public Attention {
 public:
  LatentAttention(const ModelConfig& m, const Parallel& parallel)
      : heads_(m.num_attention_heads / parallel.tp.size()), head_dim_(m.head_dim) {
    const std::int64_t width = m.num_attention_heads * m.head_dim, latent = 8;
    // With sequence parallelism a rank sees only its tokens: its gradient of this weight is partial.
    down_ld_ = declare("down", {.shape = {latent, m.hidden_size}, .partial = parallel.partial_between()}, parallel);
    norm_ = register_module("latent_norm",
                            std::make_shared<RmsNorm>(latent, m.norm_eps, parallel, parallel.partial_between()));
    q_ = register_module("q", std::make_shared<ColumnLinear>(m.hidden_size, width, parallel));
    k_ = register_module("k", std::make_shared<ColumnLinear>(latent, width, parallel));
    v_ = register_module("v", std::make_shared<ColumnLinear>(latent, width, parallel));
    out_ = register_module(
        "out", std::make_shared<RowLinear>(width, m.hidden_size, parallel, RowOptions{.fill = Fill::residual_weight}));
  }
  at::Tensor forward(const at::Tensor& x, const AttentionFacts& /*facts*/, const ForwardContext& context,
                     const MaybeRebuild& /*rebuild*/) override {
    const at::Tensor latent = norm_->forward(at::matmul(x, down_ld_.t()));
    const auto heads = [&](const at::Tensor& y) {
      return y.view({context.batch, context.length, heads_, head_dim_}).transpose(1, 2);
    };
    const at::Tensor out_bhsd =
        at::scaled_dot_product_attention(heads(q_->forward(x)), heads(k_->forward(latent)), heads(v_->forward(latent)),
                                         /*attn_mask=*/{}, /*dropout_p=*/0,
                                         /*is_causal=*/true);
    return out_->forward(out_bhsd.transpose(1, 2).reshape({context.tokens(), heads_ * head_dim_}));
  }

 private:
  const std::int64_t heads_, head_dim_;
  at::Tensor down_ld_;
  std::shared_ptr<RmsNorm> norm_;
  std::shared_ptr<ColumnLinear> q_, k_, v_;
  std::shared_ptr<RowLinear> out_;
};

const bool kIsRegistered = [] {
  register_family({.name = "latent", .attention = [](const ModelConfig& m, const Parallel& parallel, std::int64_t) {
                     return std::make_shared<LatentAttention>(m, parallel);
                   }});
  register_family({.name = "no-attention", .attention = [](const ModelConfig&, const Parallel&, std::int64_t) {
                     return std::shared_ptr<Attention>();
                   }});
  register_family({.name = "wide-mlp", .mlp = [](const ModelConfig& m, const Parallel& parallel, std::int64_t layer) {
                     return std::make_shared<GatedMlp>(m.hidden_size, 8 * (layer + 1), parallel);
                   }});
  return true;
}();

TEST(OwnAttention, LayoutsAgreeWithOneRank) {
  ASSERT_TRUE(kIsRegistered);
  const std::string tp = "parallelism.tp 2";
  struct Split {
    int ranks;
    std::vector<std::string> settings;
  };
  for (const auto& [ranks, settings] : std::vector<Split>{
           {2, {tp}},
           {2, {tp, "parallelism.sequence_parallel false"}},
           {2, {"parallelism.pp 2", "activation_checkpoint.mode full"}},
           {4, {tp, "parallelism.zero 3"}},
       })
    for (const char* family : {"latent", "wide-mlp"}) {
      const VerifyResult result = verify(config_for(family, settings, ranks));
      EXPECT_TRUE(result.passed) << family << "\n" << result.str();
      for (const TensorDifference& gradient : result.gradients) EXPECT_LE(gradient.relative, 1e-12) << gradient.name;
      const auto has = [&](const char* name) {
        return std::ranges::count(result.gradients, name, &TensorDifference::name) == 1;
      };
      EXPECT_EQ(has("layers.1.attention.down"), family == std::string("latent"));
      EXPECT_EQ(has("layers.1.attention.qkv.weight"), family != std::string("latent"));
    }
}

TEST(OwnAttention, MistakesAreNamed) {
  EXPECT_THAT(message_of<ConfigError>([] { verify(config_for("no-attention", {}, 1)); }),
              HasSubstr("the family no-attention returned no attention for layer 0"));
  const auto layer = [](const ModelConfig&, const Parallel&, std::int64_t) { return std::shared_ptr<DecoderLayer>(); };
  const auto attention = [](const ModelConfig&, const Parallel&, std::int64_t) { return std::shared_ptr<Attention>(); };
  EXPECT_THAT(
      message_of<ConfigError>([&] { register_family({.name = "both", .layer = layer, .attention = attention}); }),
      HasSubstr("both has a layer, and parts of a layer\n  fix: "));
  EXPECT_THAT(message_of<ConfigError>([&] { register_family({.name = "neither"}); }),
              HasSubstr("neither has no layer, attention or MLP of its own\n  fix: "));
}

}  // namespace
}  // namespace trireme
