#include "trireme/train/setup/memory_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/planner/memory.hpp"
#include "trireme/testing/config_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

const at::Device kCpu(at::kCPU);

Config two_ranks() {
  return load_good("model.preset = 'gpt2'\nmodel.dtype = 'float32'\ntraining.seq_len = 1024\nparallelism.zero = 1\n",
                   {"--parallelism.dp", "2", "--training.micro_batch_size", "8"})
      .config;
}

MemoryBudget host(double total, double available) {
  return {.total = total, .available = available, .ranks = 2, .owner = "this host"};
}

TEST(MemoryCheck, ComparesThePredictionWithTheMemory) {
  const Config config = two_ranks();
  const planner::MemoryPlan plan = planner::predict_memory(config, "float32", false);
  const double kept = plan.weights + plan.gradients + plan.master + plan.states;
  const double process = 300 * 0x1p20;
  EXPECT_EQ(check_memory(config, host(1e12, 2.1 * (plan.total() + process)), kCpu), "");

  const std::string warning = check_memory(config, host(1e12, 1.9 * (plan.total() + process)), kCpu);
  EXPECT_THAT(warning, testing::MatchesRegex("this may run out of memory: predicted .* per rank\\)"));
  EXPECT_THAT(warning, testing::HasSubstr(", for 2 ranks\n  fix: "));

  EXPECT_EQ(check_memory(config, host(2.1 * kept, 1e12), kCpu), "");
  const std::string refusal = message_of<OutOfMemory>([&] { check_memory(config, host(1.9 * kept, 1e12), kCpu); });
  EXPECT_THAT(refusal, testing::StartsWith("the model needs "));
  EXPECT_THAT(refusal, testing::HasSubstr("(nothing was started)\n  fix: "));
}

TEST(MemoryCheck, AGpuBelongsToOneRank) {
  const Config config = two_ranks();
  const double needed = planner::predict_memory(config, "float32", true).total();
  MemoryBudget gpu{.total = 1e12, .available = needed / 0.94, .ranks = 1, .on_gpu = true, .owner = "cuda:0"};
  EXPECT_EQ(check_memory(config, gpu, kCpu), "");
  gpu.available = needed / 0.96;
  EXPECT_THAT(check_memory(config, gpu, kCpu), testing::HasSubstr("cuda:0 has "));
}

/// A limit that nobody knows of has refused: what is proposed needs less than what was predicted.
TEST(MemoryCheck, AdviceAfterAFailureNeedsLess) {
  const std::string advice = memory_advice(two_ranks(), host(1e12, 1e12), kCpu);
  EXPECT_THAT(advice, testing::StartsWith("\n  predicted "));
  EXPECT_THAT(advice,
              testing::HasSubstr("\n  fix: training.micro_batch_size = 4, training.grad_accum = 2 (predicted "));
}

}  // namespace
}  // namespace trireme
