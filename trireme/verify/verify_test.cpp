#include "trireme/verify/verify.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/schema/dense_grid.hpp"
#include "trireme/describe/local_parameters.hpp"
#include "trireme/model/grouped_query_attention.hpp"
#include "trireme/model/register_family.hpp"
#include "trireme/parallel/tensor/mlp.hpp"
#include "trireme/planner/memory.hpp"
#include "trireme/testing/test_helpers.hpp"
#include "trireme/testing/verify_config.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

/// Attention beside an MLP, on one norm. `fault`: what depends on the layout.
class SideBySide final : public DecoderLayer {
 public:
  SideBySide(const ModelConfig& m, const Parallel& parallel, std::string fault)
      : parallel_(parallel), fault_(std::move(fault)), dropout_rate_(m.resid_pdrop) {
    const AxisSet partial = fault_ == "the gradient of a norm" ? AxisSet() : parallel.partial_between();
    norm_ = register_module("norm", std::make_shared<RmsNorm>(m.hidden_size, m.norm_eps, parallel, partial));
    attention_ = register_module("attention", std::make_shared<GroupedQueryAttention>(attention_options(m), parallel));
    mlp_ = register_module("mlp", std::make_shared<GatedMlp>(m.hidden_size, m.intermediate_size, parallel));
    dropout_ = register_module("dropout", std::make_shared<Dropout>(dropout_rate_));
  }
  at::Tensor forward(const at::Tensor& x, const TokenFacts& tokens) override {
    const at::Tensor y = norm_->forward(x);
    const at::Tensor sum = attention_->forward(y, tokens.attention, tokens.context) + mlp_->forward(y, tokens.context);
    const at::Tensor out = x + dropout_->forward(sum, tokens.rows_t, tokens.context);
    if (fault_ == "the output") return out * (1 + 1e-10 * (parallel_.tp.size() - 1));
    return fault_ == "a stage" && parallel_.params.mesh().coord(Axis::pp) > 0 ? out * (1 + 1e-10) : out;
  }

 private:
  const Parallel parallel_;
  const std::string fault_;
  const double dropout_rate_;
  std::shared_ptr<RmsNorm> norm_;
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<GatedMlp> mlp_;
  std::shared_ptr<Dropout> dropout_;
};

/// The fault is in this layer.
ModelFamily side_by_side(const std::string& name, const std::string& fault = "", std::int64_t layer = 1) {
  return {.name = name, .layer = [fault, layer](const ModelConfig& m, const Parallel& parallel, std::int64_t i) {
            return std::make_shared<SideBySide>(m, parallel, i == layer ? fault : "");
          }};
}

/// Before main(), because other tests of this program read configs.
const bool kFamiliesOfVerify = [] {
  register_family(side_by_side("side-by-side"));
  register_family(side_by_side("side-by-side-norm", "the gradient of a norm"));
  register_family(side_by_side("side-by-side-output", "the output"));
  register_family(side_by_side("side-by-side-stage", "a stage", 2));
  return true;
}();

struct Layout {
  std::string family;
  int ranks;
  std::vector<std::string> settings;
};

TEST(Verify, LayoutsAgreeWithOneRank) {
  ASSERT_TRUE(kFamiliesOfVerify);
  const std::string own = "side-by-side", tp = "parallelism.tp 2", pp = "parallelism.pp 2";
  const std::vector<Layout> layouts = {
      {"llama", 4, {tp, "parallelism.zero 3"}},
      {"llama", 2, {pp, "parallelism.pp_schedule zb1p"}},
      {"llama", 2, {"parallelism.cp 2", "model.tie_word_embeddings true"}},
      {"gpt2", 2, {pp, "model.tie_word_embeddings true", "model.num_key_value_heads 4", "model.hidden_act gelu_new"}},
      {"mixtral", 4, {tp, "parallelism.ep 2", "model.num_local_experts 4", "model.num_experts_per_tok 2"}},
      {own, 1, {"parallelism.zero 0"}},
      {own, 1, {"activation_checkpoint.mode full"}},
      {own, 2, {"parallelism.zero 0"}},
      {own, 2, {tp, "activation_checkpoint.mode selective"}},
      {own, 2, {tp, "parallelism.sequence_parallel false", "model.resid_pdrop 0.2"}},
      {own, 2, {pp, "activation_checkpoint.mode full", "model.resid_pdrop 0.2"}},
      {own, 4, {"parallelism.zero 3", "activation_checkpoint.mode full"}},
      {own, 4, {tp, "parallelism.zero 2", "model.resid_pdrop 0.1"}},
      {own, 4, {tp, pp, "model.tie_word_embeddings true"}},
      {own,
       4,
       {pp, "parallelism.zero 3", "parallelism.pp_schedule interleaved-1f1b", "parallelism.virtual_stages 2",
        "model.num_hidden_layers 4"}},
  };
  for (const Layout& layout : layouts) {
    const Config config = config_for(layout.family, layout.settings, layout.ranks);
    SCOPED_TRACE(
        text(layout.family, " on ", config::dense_grid(config.parallelism).str(), " zero ", config.parallelism.zero));
    const VerifyResult result = verify(config);
    EXPECT_TRUE(result.passed) << result.str();
    EXPECT_EQ(result.first_module, "");
    ASSERT_EQ(result.losses.size(), 2U);
    EXPECT_NE(result.losses[0], result.losses[1]) << "other batches";
    EXPECT_NEAR(result.losses[0], std::log(67), 0.3);
    EXPECT_EQ(result.activations.size(), static_cast<std::size_t>(config.model.num_hidden_layers) + 2);
    for (const TensorDifference& gradient : result.gradients) EXPECT_LE(gradient.relative, 1e-12) << gradient.name;
    const auto names = [&](const char* name) {
      return std::ranges::count(result.gradients, name, &TensorDifference::name);
    };
    EXPECT_EQ(names("layers.2.attention.qkv.weight"), 1);
    EXPECT_EQ(names("head.weight"), config.model.tie_word_embeddings ? 0 : 1);
  }
}

TEST(Verify, FindsWhereADifferenceBegins) {
  const VerifyResult norm = verify(config_for("side-by-side-norm", {"parallelism.tp 2"}, 2), {.steps = 1});
  EXPECT_FALSE(norm.passed);
  EXPECT_EQ(norm.first_module, "layers.1.norm");
  EXPECT_NEAR(norm.losses[0], norm.reference_losses[0], 1e-12) << "forward is right";
  const std::vector<TensorDifference>& all = norm.gradients;
  ASSERT_EQ(std::ranges::count(all, false, &TensorDifference::within), 1);
  const auto wrong = std::ranges::find(all, false, &TensorDifference::within);
  EXPECT_EQ(wrong->name, "layers.1.norm.weight");
  EXPECT_GT(wrong->max_abs, 1e-6);
  EXPECT_THAT(norm.str(),
              HasSubstr("1 beyond the tolerance\nthe layout differs from one rank, beginning with layers.1.norm"));

  const VerifyResult output = verify(config_for("side-by-side-output", {"parallelism.tp 2"}, 2));
  EXPECT_FALSE(output.passed);
  EXPECT_EQ(output.first_module, "layers.1");
  EXPECT_NEAR(output.activations[2].relative, 1e-10, 3e-11) << "estimated, of " << output.activations[2].name;
  EXPECT_TRUE(output.activations[1].within);
  EXPECT_TRUE(verify(config_for("side-by-side-output", {}, 2)).passed) << "without tp there is no fault";
  EXPECT_EQ(verify(config_for("side-by-side-stage", {"parallelism.pp 2"}, 2)).first_module, "layers.2");
  EXPECT_TRUE(verify(config_for("side-by-side-stage", {}, 2)).passed) << "without pp there is no fault";
  EXPECT_TRUE(verify(config_for("side-by-side-output", {"parallelism.tp 2"}, 2),
                     {.tolerances = VerifyTolerances{.loss = 1e-8, .tensor = 1e-8}})
                  .passed);
}

TEST(Verify, RefusesWhatItCannotRun) {
  Config config = config_for("llama", {}, 2);
  EXPECT_THAT(message_of<ConfigError>([&] { verify(config, {.steps = 0}); }), HasSubstr("must be at least 1"));
  config.parallelism.dp = -1;
  EXPECT_THAT(message_of<ConfigError>([&] { verify(config); }),
              HasSubstr("verify: parallelism.dp = -1: must be a number"));
}

/// Of a layer: the weights that tp cuts, and those that it does not; 128: rows of a padded vocabulary.
TEST(Verify, MemoryOfARegisteredFamilyIsThatOfItsParameters) {
  const Config config = config_for("side-by-side", {"parallelism.tp 2"}, 2);
  const config::LocalParameters local = config::local_parameters(config.model, 2);
  EXPECT_THAT(local.layer, testing::ElementsAre(20, 24 * 20, 20 * 12, 32 * 20, 20 * 16));
  EXPECT_THAT(local.head, testing::ElementsAre(20, 128 * 20));
  const planner::MemoryPlan plan = planner::predict_memory(config, "float32", false);
  EXPECT_EQ(plan.weights, 4.0 * (2 * 128 * 20 + 20 + 3 * (20 + 480 + 240 + 640 + 320)));
}

}  // namespace
}  // namespace trireme
