#include "trireme/train/step/microbatch_graphs.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

const at::Device kGraphGpu(at::kCUDA, 0);

Config graph_config(const std::string& asked) {
  Config config;
  config.cuda.graphs = asked;
  config.parallelism.dp = 1;
  config.parallelism.zero = 1;
  config.precision.param = "bfloat16";
  return config;
}

TEST(MicrobatchGraphs, AreUsedWhereShapesStandStill) {
  EXPECT_TRUE(uses_graphs(graph_config("auto"), kGraphGpu, false));
  EXPECT_TRUE(uses_graphs(graph_config("on"), kGraphGpu, false));
  EXPECT_FALSE(uses_graphs(graph_config("off"), kGraphGpu, false));
  EXPECT_FALSE(uses_graphs(graph_config("auto"), at::kCPU, false));
  Config several = graph_config("auto");
  several.parallelism.dp = 2;
  EXPECT_FALSE(uses_graphs(several, kGraphGpu, false)) << "sums over dp overlap backward";
  several.cuda.graphs = "on";
  EXPECT_TRUE(uses_graphs(several, kGraphGpu, false));
  several.parallelism.tp = 2;
  EXPECT_TRUE(uses_graphs(several, kGraphGpu, false));
  several.cuda.graphs = "auto";
  several.parallelism.dp = 1;
  EXPECT_FALSE(uses_graphs(several, kGraphGpu, false)) << "calls are watched one by one";
}

TEST(MicrobatchGraphs, OnIsRefusedWithTheReason) {
  const auto why = [](const std::function<void(Config&)>& change, at::Device device = kGraphGpu, bool own = false) {
    Config config = graph_config("on");
    change(config);
    try {
      uses_graphs(config, device, own);
    } catch (const ConfigError& e) {
      config.cuda.graphs = "auto";
      EXPECT_FALSE(uses_graphs(config, device, own)) << "auto is silent";
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(why([](Config&) {}, at::kCPU), "the device is the cpu"));
  EXPECT_TRUE(has(why([](Config& c) { c.parallelism.pp = 2; }), "pp = 2"));
  EXPECT_TRUE(has(why([](Config& c) { c.parallelism.cp = 2; }), "cp = 2"));
  EXPECT_TRUE(has(why([](Config& c) { c.parallelism.tp = 2, c.comm.check = "strict"; }), "strict"));
  EXPECT_TRUE(has(why([](Config& c) { c.parallelism.tp = 2, c.comm.backend = "gloo"; }), "gloo"));
  EXPECT_TRUE(has(why([](Config& c) { c.parallelism.zero = 3; }), "zero = 3"));
  EXPECT_TRUE(has(why([](Config& c) { c.model.num_local_experts = 8, c.parallelism.dp = 2; }), "several ranks"));
  EXPECT_TRUE(has(why([](Config& c) { c.model.num_local_experts = 8, c.model.expert_capacity_factor = 1; }),
                  "expert_capacity_factor"));
  EXPECT_TRUE(has(why([](Config& c) { c.model.num_local_experts = 8, c.precision.param = "float32"; }), "float32"));
  EXPECT_TRUE(has(why([](Config& c) { c.model.num_local_experts = 8, c.model.hidden_size = 60; }), "multiples of 8"));
  EXPECT_TRUE(has(why([](Config& c) { c.precision.param = "float16"; }), "loss scale"));
  EXPECT_TRUE(has(why([](Config& c) { c.model.attention_dropout = 0.1; }), "attention_dropout"));
  EXPECT_TRUE(has(why([](Config&) {}, kGraphGpu, true), "custom layers"));
}

Microbatch microbatch_of(std::int64_t step, const at::TensorOptions& options) {
  Microbatch microbatch;
  microbatch.ids_T = at::full({8}, step, options);
  microbatch.targets_T = at::zeros({8}, options);
  microbatch.context = {.step = step,
                        .batch = 2,
                        .length = 4,
                        .samples_T = at::zeros({8}, options),
                        .positions_T = at::zeros({8}, options)};
  return microbatch;
}

TEST(MicrobatchGraphs, NothingIsRecordedOnceDocumentsAppear) {
  const at::TensorOptions options(at::kLong);  // a CPU cannot record
  std::int64_t calls = 0;
  MicrobatchGraphs graphs(
      [&](const Microbatch&, const at::Tensor&) {
        ++calls;
        return at::zeros({});
      },
      [] {}, at::kCPU);
  for (std::int64_t step = 1; step <= 6; ++step) {
    Microbatch microbatch = microbatch_of(step, options);
    if (step == 2) microbatch.context.document_bounds = at::zeros({3}, at::kInt);
    EXPECT_FALSE(graphs.run(microbatch, true, at::ones({})).replayed);
    EXPECT_EQ(calls, step);
  }
}

TEST(MicrobatchGraphs, ReplayWithNewTokens) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  kernels::use_own_stream(kGraphGpu);
  const auto options = at::TensorOptions(at::kLong).device(kGraphGpu);
  const at::Tensor sum = at::zeros({}, options.dtype(at::kDouble));  // stands for gradients
  double auxiliary = 0;
  int calls = 0, replays = 0;
  MicrobatchGraphs graphs(
      [&](const Microbatch& microbatch, const at::Tensor& loss_gradient) {
        ++calls;
        const at::Tensor loss = microbatch.ids_T.to(at::kDouble).sum();
        sum.copy_(loss * loss_gradient);
        // Two layers report one.
        for (int layer = 0; layer < 2; ++layer)
          microbatch.context.auxiliary_loss(loss * microbatch.context.auxiliary_factor);
        return loss;
      },
      [&] { ++replays; }, kGraphGpu);
  const auto steps = [&](int first, int last) {
    for (int step = first; step <= last; ++step) {
      Microbatch microbatch = microbatch_of(step, options);
      auxiliary = 0;
      microbatch.context.auxiliary_factor = 0.25;
      microbatch.context.auxiliary_loss = [&](const at::Tensor& x) { auxiliary += x.item<double>(); };
      const MicrobatchGraphs::Done done =
          graphs.run(microbatch, true, at::full({}, 0.5 * step, options.dtype(at::kDouble)));
      EXPECT_EQ(auxiliary, 4 * step) << "step " << step;
      EXPECT_EQ(done.loss.item<double>(), 8 * step);
      EXPECT_EQ(sum.item<double>(), 4 * step * step);
      EXPECT_EQ(done.replayed, step > first + 2);
    }
  };
  steps(1, 6);
  EXPECT_EQ(calls, 3) << "two as they are, and the recording";
  EXPECT_EQ(replays, 4);
  graphs.release();
  steps(7, 12);
  EXPECT_EQ(calls, 6) << "recorded anew";
  EXPECT_EQ(replays, 8);
}

}  // namespace
}  // namespace trireme
