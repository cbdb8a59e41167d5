#include "trireme/planner/search.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/read/derive.hpp"
#include "trireme/config/read/parse.hpp"

namespace trireme::planner {
namespace {

using testing::HasSubstr;

PlanQuestion question(const std::vector<std::string>& flags, int gpus, double memory_gb = 77) {
  config::LoadedConfig loaded = config::load_config_text("", "", flags);
  config::throw_if_any(loaded.violations);
  config::derive(loaded);
  loaded.config.model.dtype = "bfloat16";
  if (loaded.config.training.global_batch_size < gpus) loaded.config.training.global_batch_size = 4L * gpus;
  return {.config = loaded.config,
          .machine = {gpu_named("h100"), gpus},
          .software = software_named("trireme"),
          .memory_bytes = memory_gb * 1e9};
}

const std::vector<std::string> k8b{"--model.preset", "llama3-8b", "--training.seq_len", "4096"};

TEST(FindPlans, FastestFirstAndAllFit) {
  const PlanQuestion asked = question(k8b, 8);
  const FoundPlans found = find_plans(asked, 10);
  ASSERT_GE(found.plans.size(), 3U);
  for (std::size_t i = 0; i < found.plans.size(); ++i) {
    const Plan& plan = found.plans[i];
    EXPECT_LE(plan.memory_bytes, asked.memory_bytes);
    const ParallelismConfig& p = plan.config.parallelism;
    EXPECT_EQ(p.dp * p.tp * p.pp * p.cp, 8);
    EXPECT_EQ(p.dp * plan.config.training.micro_batch_size * plan.config.training.grad_accum,
              asked.config.training.global_batch_size);
    EXPECT_LE(plan.tokens_per_second, found.plans[i == 0 ? 0 : i - 1].tokens_per_second);
    EXPECT_NEAR(plan.tokens_per_second, predict_plan(plan.config, asked.machine, asked.software).tokens_per_second,
                1e-6);
  }
  EXPECT_THAT(why_slower(found.plans[1], found.plans[0]), HasSubstr(" % slower: "));
}

/// The search skips what cannot fit by a coarse formula: it must not lose what fits.
TEST(FindPlans, LosesNoneThatFits) {
  std::vector<std::tuple<const char*, int, double>> cases{{"llama3-8b", 8, 77.0}, {"llama3-8b", 8, 40.0}};
  for (const char* preset : {"tiny-llama", "gpt2", "llama3.2-1b"})
    for (const int gpus : {1, 2, 3, 4})
      for (const double gb : {2.1, 3.0, 6.0, 20.0}) cases.emplace_back(preset, gpus, gb);
  ASSERT_EQ(cases.size(), 50U);
  cases.emplace_back("llama3-8b", 4, 30.0);  // fits without states alone
  for (const auto& [preset, gpus, memory] : cases) {
    std::vector<std::string> flags{"--model.preset", preset, "--training.seq_len", "512"};
    if (memory == 30.0) flags.insert(flags.end(), {"--optimizer.name", "sgd", "--optimizer.momentum", "0"});
    PlanQuestion asked = question(flags, gpus, memory);
    const FoundPlans found = find_plans(asked, 1);
    const double limit = asked.memory_bytes;
    asked.memory_bytes = 1e15;
    double best = 0;
    PlanQuestion any = asked;
    any.accepts = [&](const Config& config) {
      const Plan plan = predict_plan(config, any.machine, any.software);
      if (plan.memory_bytes <= limit) best = std::max(best, plan.tokens_per_second);
      return false;  // look at all
    };
    EXPECT_TRUE(find_plans(any, 1).plans.empty());
    ASSERT_EQ(found.plans.empty(), best == 0) << preset;
    EXPECT_NEAR(found.plans.empty() ? 0 : found.plans[0].tokens_per_second, best, 1e-9 * best) << preset << memory;
  }
}

TEST(FindPlans, MoreMemoryIsNeverSlower) {
  double before = 0;
  for (const double gb : {30.0, 40.0, 60.0, 80.0, 140.0}) {
    const FoundPlans found = find_plans(question(k8b, 8, gb), 1);
    const double best = found.plans.empty() ? 0 : found.plans[0].tokens_per_second;
    EXPECT_GE(best, before) << gb;
    before = best;
  }
  EXPECT_GT(before, 0);
}

TEST(FindPlans, NothingFits) {
  const FoundPlans found = find_plans(question({"--model.preset", "llama3-70b"}, 1), 5);
  EXPECT_TRUE(found.plans.empty());
}

TEST(FindPlans, ExpertsAreSharedOverRanks) {
  const PlanQuestion asked = question({"--model.model_type",
                                       "qwen3_moe",
                                       "--model.hidden_size",
                                       "2048",
                                       "--model.num_hidden_layers",
                                       "24",
                                       "--model.num_attention_heads",
                                       "16",
                                       "--model.num_key_value_heads",
                                       "4",
                                       "--model.head_dim",
                                       "128",
                                       "--model.intermediate_size",
                                       "6144",
                                       "--model.moe_intermediate_size",
                                       "768",
                                       "--model.num_local_experts",
                                       "128",
                                       "--model.num_experts_per_tok",
                                       "8",
                                       "--model.vocab_size",
                                       "151936",
                                       "--training.seq_len",
                                       "4096"},
                                      16);
  const FoundPlans found = find_plans(asked, 20);
  ASSERT_FALSE(found.plans.empty());
  EXPECT_TRUE(std::ranges::any_of(found.plans, [](const Plan& plan) { return plan.config.parallelism.ep > 1; }));
}

TEST(FindPlans, LayoutsInWords) {
  Config config = question(k8b, 8).config;
  config.parallelism.dp = 2;
  config.parallelism.pp = 4;
  config.parallelism.pp_schedule = "interleaved-1f1b";
  config.parallelism.virtual_stages = 2;
  config.training.grad_accum = 8;
  config.training.micro_batch_size = 1;
  config.activation_checkpoint.mode = "selective";
  EXPECT_EQ(layout_text(config),
            "dp 2 · pp 4 (interleaved-1f1b, 2 stages per rank) · zero 1 · 8 microbatches of 1 · selective recompute");
  const auto settings = settings_of(config);
  EXPECT_THAT(settings, testing::Contains(std::pair<std::string, std::string>("parallelism.virtual_stages", "2")));
}

}  // namespace
}  // namespace trireme::planner
