#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/compat/megatron.hpp"
#include "trireme/compat/nanotron.hpp"
#include "trireme/runtime/environment/rendezvous.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::compat {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

/// The exception message of each rank, "" if it did not throw.
template <class Body>
std::vector<std::string> on_ranks(int size, const Body& body) {
  std::vector<std::string> thrown(static_cast<std::size_t>(size));
  std::vector<std::jthread> ranks;
  for (int r = 0; r < size; ++r)
    ranks.emplace_back([&, r] {
      try {
        body(r);
      } catch (const std::exception& e) {
        thrown[static_cast<std::size_t>(r)] = e.what();
      }
    });
  ranks.clear();
  return thrown;
}

double sum_over(Group& group, double mine) {
  return group.all_reduce(at::full({1}, mine, at::kDouble)).wait().item<double>();
}

TEST(Megatron, MpuHoldsTheGroupsOfItsRank) {
  const int port = host_store().port;  // free again: rank 0 of the MPU hosts its own store
  const auto thrown = on_ranks(4, [&](int r) {
    const MPU mpu(r, 4, 2, 1, "127.0.0.1", port);
    EXPECT_THAT(mpu.get_tensor_model_parallel_group().world_ranks(), ElementsAre(r / 2 * 2, r / 2 * 2 + 1));
    EXPECT_THAT(mpu.get_data_parallel_group().world_ranks(), ElementsAre(r % 2, r % 2 + 2));
    EXPECT_EQ(mpu.get_pipeline_model_parallel_group().size(), 1);
    EXPECT_EQ(sum_over(mpu.get_data_parallel_group(), r), 2 * (r % 2) + 2);
  });
  EXPECT_THAT(thrown, Each(""));
  EXPECT_THAT(message_of<ConfigError>([] { MPU(0, 6, 4, 1, "127.0.0.1", 1); }),
              HasSubstr("world_size = 6 is not divisible by tensor_model_parallel_size = 4"));
}

TEST(Megatron, FunctionsAndNanotronsAgreeWithTheGrid) {
  const int port = host_store().port;
  const auto thrown = on_ranks(8, [&](int r) {
    const MPU mpu(r, 8, 2, 2, "127.0.0.1", port);
    const ParallelContext& context = mpu.context();
    const LocalRanks at = get_local_ranks(context, r);
    EXPECT_EQ(world_rank_matrix(context)(at.pp, at.dp, at.cp, at.tp), r);
    EXPECT_EQ(get_tensor_model_parallel_rank(context), at.tp);
    EXPECT_EQ(get_data_parallel_rank(context), at.dp);
    EXPECT_EQ(get_pipeline_model_parallel_rank(context), at.pp);
    EXPECT_EQ(is_pipeline_first_stage(context), at.pp == 0);
    EXPECT_EQ(is_pipeline_last_stage(context), at.pp == 1);
    EXPECT_EQ(get_model_parallel_group(context).size(), 4);
    EXPECT_EQ(&world_ranks_to_pg(context, {0, 1, 2, 3, 4, 5, 6, 7}), &context.world_pg());
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Nanotron, CheckpointMethodRecomputesWhenTold) {
  for (const bool do_checkpoint : {false, true}) {
    int runs = 0;
    const at::Tensor x = at::ones({3}).set_requires_grad(true);
    const auto body = [&runs](const at::Tensor& in) {
      ++runs;
      return in * in;
    };
    checkpoint_method(do_checkpoint, body, x).sum().backward();
    EXPECT_TRUE(x.grad().eq(2).all().item<bool>());
    EXPECT_EQ(runs, do_checkpoint ? 2 : 1);
  }
  const InitScope scope = init_on_device_and_dtype(at::kMeta, at::kBFloat16);
  EXPECT_EQ(current_init_options().device(), at::Device(at::kMeta));
}

TEST(Nanotron, PipelinesHaveItsNames) {
  run_ranks(1, [](World& world) {
    Mesh mesh(Grid::dense({}), world);
    P2P p2p(mesh, at::kCPU);
    PipelineBlock block({.p2p = p2p,
                         .name = "square",
                         .module_builder = [] { return [](const at::Tensor& x) { return x.square().sum(); }; },
                         .module_input_keys = {"x"},
                         .module_output_keys = {"output"}});
    block.build_and_set_rank(0);
    const at::Tensor x = at::ones({3}).set_requires_grad(true);
    const auto loss = [&](const TensorDict& batch) { return block({{"x", batch["x"]}})["output"]; };
    AllForwardAllBackwardPipelineEngine(p2p).train_batch(loss, {{{"x", x}}});
    OneForwardOneBackwardPipelineEngine(p2p).train_batch(loss, {{{"x", x}}});
    EXPECT_TRUE(x.grad().eq(4).all().item<bool>());  // 2 from each engine
  });
}

}  // namespace
}  // namespace trireme::compat
