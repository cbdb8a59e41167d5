#include "trireme/config/read/derive.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

struct Following {
  std::string toml;
  int ranks;
  std::string key, value;
};

LoadedConfig derived(const std::string& toml, int ranks = 0) {
  LoadedConfig loaded = load(toml);
  derive(loaded, {.ranks = ranks});
  return loaded;
}

TEST(Derive, FillsInWhatFollows) {
  const std::string three = "training.micro_batch_size = 4\ntraining.grad_accum = 2\n";
  const Following rows[] = {
      {"model.num_attention_heads = 12", 0, "model.num_key_value_heads", "12"},
      {"model.num_attention_heads = 12\nmodel.num_key_value_heads = 4", 0, "model.num_key_value_heads", "4"},
      {"model.hidden_size = 768\nmodel.num_attention_heads = 12", 0, "model.head_dim", "64"},
      {"model.hidden_size = 768\nmodel.num_attention_heads = 12\nmodel.head_dim = 32", 0, "model.head_dim", "32"},
      {"model.model_type = \"gpt2\"\nmodel.hidden_size = 768", 0, "model.intermediate_size", "3072"},
      {"model.preset = \"gpt2\"\nmodel.hidden_size = 1536", 0, "model.intermediate_size", "6144"},
      {"model.hidden_size = 768", 0, "model.intermediate_size", "0"},
      {"model.num_local_experts = 8\nmodel.intermediate_size = 96", 0, "model.moe_intermediate_size", "96"},
      {"model.intermediate_size = 96", 0, "model.moe_intermediate_size", "0"},
      {"model.num_local_experts = 8\nmodel.router_aux_loss_coef = 0.1\nmodel.router_aux_loss_type = \"hf\"\n" + three,
       2, "model.router_aux_loss_samples", "8"},
      {"model.num_local_experts = 8\nmodel.router_aux_loss_coef = 0.1\n" + three, 2, "model.router_aux_loss_samples",
       "0"},
      {"model.hidden_size = 8\ntraining.seq_len = 99", 0, "model.max_position_embeddings", "99"},
      {"model.hidden_size = 8\n[training]\nseq_len = 64\n[[data]]\n[[data]]\nseq_len = 128", 0,
       "model.max_position_embeddings", "128"},
      {"model.hidden_size = 8\nmodel.max_position_embeddings = 7", 0, "model.max_position_embeddings", "7"},
      {"model.preset = \"gpt3-175b\"\ntraining.seq_len = 64", 0, "model.max_position_embeddings", "2048"},
      {"model.hidden_size = 8\ntokenizer.path = \"bytes\"\nmodel.vocab_multiple = 100", 0, "model.vocab_size", "300"},
      {"tokenizer.path = \"bytes\"", 0, "model.vocab_size", "0"},
      {"", 8, "parallelism.dp", "8"},
      {"parallelism.tp = 2\nparallelism.pp = 2", 8, "parallelism.dp", "2"},
      {"parallelism.tp = 3", 8, "parallelism.dp", "-1"},
      {"", 0, "parallelism.dp", "-1"},
      {"parallelism.dp = 4", 8, "parallelism.dp", "4"},
      {"parallelism.tp = 4", 0, "parallelism.expert_tp", "4"},
      {"parallelism.tp = 4\nparallelism.expert_tp = 1", 0, "parallelism.expert_tp", "1"},
      {"parallelism.pp_schedule = \"gpipe\"", 0, "parallelism.pp_schedule", "\"afab\""},
      {"parallelism.pp_schedule = \"zero-bubble\"", 0, "parallelism.pp_schedule", "\"zb1p\""},
      {"training.steps = 100\nlr_scheduler.warmup_steps = 10", 0, "lr_scheduler.decay_steps", "90"},
      {"training.steps = 100\nlr_scheduler.warmup_steps = 200", 0, "lr_scheduler.decay_steps", "0"},
      {"training.steps = 100\nlr_scheduler.decay_steps = 30", 0, "lr_scheduler.decay_steps", "30"},
      {"training.steps = 100\nlr_scheduler.decay_steps = 30", 0, "lr_scheduler.decay_start_step", "70"},
      {"training.steps = 100\nlr_scheduler.decay_steps = 30", 0, "lr_scheduler.decay_end_step", "100"},
      {"lr_scheduler.decay_steps = 30\nlr_scheduler.decay_start_step = 5", 0, "lr_scheduler.decay_end_step", "35"},
      {"lr_scheduler.decay_steps = 30\nlr_scheduler.decay_end_step = 50", 0, "lr_scheduler.decay_start_step", "20"},
      {"lr_scheduler.decay_start_step = 5\nlr_scheduler.decay_end_step = 50", 0, "lr_scheduler.decay_steps", "45"},
      {"[training]\nseq_len = 64\n[[data]]\n[[data]]\nseq_len = 128", 0, "data.0.seq_len", "64"},
      {"[training]\nseq_len = 64\n[[data]]\n[[data]]\nseq_len = 128", 0, "data.1.seq_len", "128"},
      {"model.dtype = \"float64\"", 0, "precision.reduce", "\"float64\""},
      {"model.dtype = \"float64\"", 0, "precision.accumulate", "\"float64\""},
      {"model.dtype = \"float64\"", 0, "precision.master", "\"float64\""},
      {"precision.param = \"float64\"", 0, "precision.states", "\"float64\""},
      {"model.dtype = \"float64\"", 0, "precision.param", "\"auto\""},
      {"precision.param = \"float64\"\nprecision.states = \"float32\"", 0, "precision.states", "\"float32\""},
      {"model.dtype = \"auto\"", 0, "precision.states", "\"float32\""},
      {"model.dtype = \"auto\"", 0, "model.dtype", "\"auto\""},
      {"", 0, "training.global_batch_size", "1"},
      {"", 8, "training.global_batch_size", "8"},
      {three, 8, "training.global_batch_size", "64"},
      {three, 0, "training.global_batch_size", "8"},
      {"training.micro_batch_size = 4\ntraining.global_batch_size = 96", 8, "training.grad_accum", "3"},
      {"training.grad_accum = 4\ntraining.global_batch_size = 96", 8, "training.micro_batch_size", "3"},
      {"training.global_batch_size = 96", 8, "training.micro_batch_size", "1"},
      {"training.global_batch_size = 96", 8, "training.grad_accum", "12"},
      {"training.grad_accum = 4", 2, "training.micro_batch_size", "1"},
  };
  for (const Following& row : rows) {
    LoadedConfig loaded = derived(row.toml, row.ranks);
    EXPECT_EQ(value_of(loaded.config, row.key), row.value) << row.toml << "\n" << row.ranks << " ranks: " << row.key;
  }
}

TEST(Derive, SaysByWhatRule) {
  const LoadedConfig loaded = derived(kTiny, 8);
  EXPECT_EQ(loaded.origins.at("parallelism.dp").kind, Origin::Kind::derived);
  EXPECT_EQ(str(loaded.place_of("parallelism.dp")), "derived: ranks / (tp x cp x pp)");
  EXPECT_EQ(str(loaded.place_of("training.global_batch_size")), "derived: micro_batch_size x grad_accum x dp");
  EXPECT_EQ(loaded.origins.at("model.hidden_size").kind, Origin::Kind::preset);
}

/// A launcher may first derive without ranks to see what a config needs, and then start ranks.
TEST(Derive, AgainWithOtherRanksIsAsWithThemAtOnce) {
  const std::string toml = std::string(kTiny) + "training.global_batch_size = 96\nparallelism.tp = 2\n";
  LoadedConfig twice = derived(toml);
  EXPECT_EQ(twice.config.training.grad_accum, 96);
  derive(twice, {.ranks = 8});
  EXPECT_EQ(values_of(twice.config), values_of(derived(toml, 8).config));
  EXPECT_EQ(twice.config.training.grad_accum, 24);
}

TEST(Derive, Float64IsForgottenWithItsReason) {
  LoadedConfig loaded = derived("model.dtype = \"float64\"");
  EXPECT_EQ(loaded.origins.at("precision.master").kind, Origin::Kind::derived);
  EXPECT_EQ(str(loaded.place_of("precision.master")), "derived: float64 weights");
  loaded.config.model.dtype = "float32";
  derive(loaded);
  EXPECT_EQ(loaded.config.precision.master, "float32");
  EXPECT_FALSE(loaded.is_given("precision.master"));
}

TEST(ParamDtype, IsWhatTheNearerKeySays) {
  Config config;
  EXPECT_EQ(param_dtype(config), "auto");
  config.model.dtype = "bfloat16";
  EXPECT_EQ(param_dtype(config), "bfloat16");
  config.precision.param = "float32";
  EXPECT_EQ(param_dtype(config), "float32");
  EXPECT_FALSE(is_float64(config));
  config.precision.param = "float64";
  EXPECT_TRUE(is_float64(config));
}

RC_GTEST_PROP(Derive, AnyTwoBatchSizesGiveTheThird, ()) {
  const int micro = pick(1, 16), accum = pick(1, 16), dp = pick(1, 16), open = pick(0, 2);
  Flags flags = {"--model.preset", "tiny-llama"};
  if (open != 0) flags.push_back(text("--training.micro_batch_size=", micro));
  if (open != 1) flags.push_back(text("--training.grad_accum=", accum));
  if (open != 2) flags.push_back(text("--training.global_batch_size=", micro * accum * dp));
  const TrainingConfig t = load_good("", flags, {.ranks = dp}).config.training;
  RC_ASSERT(t.micro_batch_size == micro);
  RC_ASSERT(t.grad_accum == accum);
  RC_ASSERT(t.global_batch_size == micro * accum * dp);
}

}  // namespace
}  // namespace trireme::config
