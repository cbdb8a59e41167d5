#include "trireme/planner/step_time.hpp"

#include <random>

#include <gtest/gtest.h>

#include "trireme/config/read/derive.hpp"
#include "trireme/config/read/parse.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/schedule/replay.hpp"

namespace trireme::planner {
namespace {

Config config_of(const std::vector<std::string>& flags) {
  config::LoadedConfig loaded = config::load_config_text("", "", flags);
  config::throw_if_any(loaded.violations);
  config::derive(loaded);
  return loaded.config;
}

const Software& ours() { return software_named("trireme"); }

StepWork llama_8b() {
  return work_of(config_of({"--model.preset", "llama3-8b", "--training.seq_len", "8192", "--training.micro_batch_size",
                            "1", "--training.grad_accum", "8"}));
}

TEST(StepTime, CountsTheFlopsThatMfuDoes) {
  for (const char* preset : {"gpt2", "llama3-8b", "tiny-llama"}) {
    const Config c = config_of({"--model.preset", preset, "--training.micro_batch_size", "2"});
    const StepWork work = work_of(c);
    EXPECT_NEAR(
        model_flops(work) / (work.tokens_per_step() *
                             config::model_flops_per_token(c.model, work.seq_len, config::CountedScores::causal)),
        1, 1e-12)
        << preset;
  }
}

/// What we have measured on an H200 (bench/measured_h200.csv).
TEST(StepTime, OwnRunsOnOneGpu) {
  const auto tokens_per_second = [](std::vector<std::string> flags) {
    const StepWork work = work_of(config_of(flags));
    return work.tokens_per_step() / predict_step(work, {gpu_named("h200"), 1}, ours()).total();
  };
  EXPECT_NEAR(tokens_per_second({"--model.preset", "gpt2", "--training.micro_batch_size", "32"}) / 580e3, 1, 0.08);
  EXPECT_NEAR(tokens_per_second({"--model.preset", "llama3.2-1b", "--model.tie_word_embeddings", "false",
                                 "--training.seq_len", "4096", "--training.micro_batch_size", "4"}) /
                  65.2e3,
              1, 0.08);
}

TEST(StepTime, BubbleOfSchedules) {
  StepWork work = llama_8b();
  const Machine machine{gpu_named("h100"), 8};
  EXPECT_EQ(predict_step(work, machine, ours()).bubble, 0);
  EXPECT_EQ(predict_step(work, machine, ours()).transfers, 0);
  work.pp = 4;
  work.microbatches = 16;
  work.vocab = 8;  // a head that costs next to nothing
  split_evenly(work);
  const StepTime plain = predict_step(work, machine, ours());
  const double busy = plain.products + plain.attention + plain.memory_bound + plain.head;
  EXPECT_NEAR(plain.bubble / busy, 3.0 / 16, 0.01);
  work.schedule = "interleaved-1f1b";
  work.virtual_stages = 2;
  EXPECT_NEAR(predict_step(work, machine, ours()).bubble / plain.bubble, 0.5, 1e-9);
  work.virtual_stages = 1;
  for (const char* name : {"zb1p", "zbv", "dualpipe-v"}) {
    work.schedule = name;
    const schedule::Replay replay = schedule::replay(schedule::make_schedule(name, 4, 16));
    EXPECT_NEAR(predict_step(work, machine, ours()).bubble / plain.bubble, (replay.makespan / 3 - 16) / 3, 0.01)
        << name;
  }
}

/// The stage with the head takes longest: the others wait for it.
TEST(StepTime, AnUnevenPipelineWaitsForTheHead) {
  StepWork work = llama_8b();
  work.pp = 4;
  work.microbatches = 64;
  split_evenly(work);
  const Machine machine{gpu_named("h100"), 8};
  const double even = predict_step(work, machine, ours()).total();
  work.last_layers -= 2;  // moved to the others
  work.most_layers += 1;
  const double balanced = predict_step(work, machine, ours()).total();
  EXPECT_LT(balanced, even);
}

/// Any layout: faster parts never make a step slower.
TEST(StepTime, MoreBandwidthIsNeverSlower) {
  std::mt19937 random(5);
  const auto one_of = [&random](std::vector<int> values) { return values[random() % values.size()]; };
  for (int i = 0; i < 300; ++i) {
    StepWork work = llama_8b();
    work.tp = one_of({1, 2, 4, 8});
    work.pp = one_of({1, 2, 4});
    work.cp = one_of({1, 2});
    work.dp = one_of({1, 2, 8});
    work.zero = one_of({0, 1, 3});
    work.micro_batch = one_of({1, 2, 4});
    work.recompute = one_of({0, 1}) == 1 ? config::Recompute::full : config::Recompute::none;
    work.fp8 = one_of({0, 1}) == 1;
    if (one_of({0, 1}) == 1) {
      work.experts = 8;
      work.experts_per_token = 2;
      work.expert_width = 4096;
      work.ep = one_of({1, 2});
    }
    split_evenly(work);
    const Software& software = software_named(software_names()[random() % software_names().size()]);
    const Machine machine{gpu_named("h100"), work.gpus()};
    const StepTime time = predict_step(work, machine, software);
    EXPECT_GT(time.total(), 0);
    for (const auto& [name, seconds] : time.parts()) EXPECT_GE(seconds, 0) << name;
    const double flops_time = model_flops(work) / (machine.gpu.peak_fp8_flops * work.gpus());
    EXPECT_GT(time.total(), flops_time) << "faster than the GPU can be";
    for (double Gpu::* member : {&Gpu::peak_flops, &Gpu::memory_bandwidth, &Gpu::link_bandwidth,
                                 &Gpu::network_bandwidth, &Gpu::product_efficiency}) {
      Machine faster = machine;
      faster.gpu.*member *= 1.5;
      EXPECT_LE(predict_step(work, faster, software).total(), time.total() * (1 + 1e-12));
    }
  }
}

TEST(StepTime, GradientsTravelAsZeroSays) {
  StepWork work = llama_8b();
  work.dp = 16;
  Machine machine{gpu_named("h100"), 16};
  machine.gpu.network_bandwidth = 5e9;
  Software exposed = ours();
  exposed.data_parallel_overlap = 0;
  const auto seconds = [&](int zero, int replicate) {
    work.zero = zero;
    work.replicate = replicate;
    return predict_step(work, machine, exposed).data_parallel;
  };
  EXPECT_GT(seconds(2, 1), 3 * seconds(1, 1)) << "in every one of 8 microbatches";
  EXPECT_GT(seconds(3, 1), seconds(2, 1));
  EXPECT_LT(seconds(3, 2), seconds(3, 1)) << "gathers stay within a host";
  EXPECT_EQ(seconds(0, 2), seconds(0, 1));
}

/// Groups that do not fit a host as a whole are as slow as the network.
TEST(StepTime, TensorParallelGroupsOverTwoHosts) {
  StepWork work = llama_8b();
  work.tp = 4;
  work.dp = 3;
  Machine machine{gpu_named("h100"), 12};
  machine.gpu.per_host = 4;
  const double inside = predict_step(work, machine, ours()).tensor_parallel;
  machine.gpu.per_host = 6;
  EXPECT_GT(predict_step(work, machine, ours()).tensor_parallel, 2 * inside);
}

TEST(StepTime, RecomputeCostsTimeAndMoreRanksSaveIt) {
  StepWork work = llama_8b();
  const Machine machine{gpu_named("h100"), 8};
  const double none = predict_step(work, machine, ours()).total();
  work.recompute = config::Recompute::full;
  EXPECT_NEAR(predict_step(work, machine, ours()).total() / none, 4.0 / 3, 0.06);
  work.recompute = config::Recompute::none;
  work.tp = 2;
  const StepTime two = predict_step(work, machine, ours());
  EXPECT_LT(two.total(), none);
  EXPECT_GT(two.total(), none / 2);
  EXPECT_GT(two.tensor_parallel, 0);
}

}  // namespace
}  // namespace trireme::planner
