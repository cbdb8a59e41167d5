#include "trireme/parallel/pipeline/executor.hpp"

#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/testing/test_helpers.hpp"
#include "trireme/testing/zero_helpers.hpp"

namespace trireme {
namespace {

/// Both single-stage schedules give the same gradients, with the same order of additions.
TEST(Executor, RunsWhatTheProgramSays) {
  std::vector<at::Tensor> sums;
  for (const bool all_first : {false, true})
    run_ranks(1, [&](World& world) {
      Mesh mesh(Grid::dense({}), world);
      test::UnitNet net;
      Zero zero(params_of(net), net.units(), mesh, {.accumulate = at::kDouble, .reduce = at::kDouble},
                {.optimizer = {}, .master = at::kDouble, .states = at::kDouble});
      Executor executor(all_first ? schedule::make_schedule("afab", 1, 3) : schedule::make_schedule("1f1b", 1, 3), zero,
                        mesh);
      std::vector<int> order;
      int asked = 0;
      const StepOutcome outcome = executor.run({.forward = whole_model([&](int m) {
                                                  order.push_back(m);
                                                  return net.loss(test::rows().narrow(0, 8 * m, 8));
                                                }),
                                                .loss_gradient = [&] {
                                                  ++asked;
                                                  return at::scalar_tensor(0.5, at::kDouble);
                                                }});
      EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
      EXPECT_EQ(asked, 1);
      zero.gradients().finish();
      sums.push_back(zero.gradients().shard(0).clone());
      const at::NoGradGuard no_grad;
      EXPECT_NEAR(outcome.loss_sum.item<double>() / net.loss(test::rows()).item<double>(), 1, 1e-13);
    });
  EXPECT_TRUE(sums[0].equal(sums[1]));
  EXPECT_GT(sums[0].norm().item<double>(), 0);
}

/// Deferred weight gradients, as in zero-bubble schedules, are bitwise the same.
TEST(Executor, WeightGradientsMayBeDeferred) {
  for (const int stage : {0, 1, 2, 3}) {
    std::vector<std::vector<at::Tensor>> sums;
    for (const char* program :
         {"0F0 0B0 0F1 0B1 0F2 0B2", "0F0 0I0 0F1 0I1 0W0 0F2 0I2 0W1 0W2", "0F0 0I0 0W0 0F1 0B1 0F2 0I2 0W2"})
      run_ranks(2, [&](World& world) {
        Mesh mesh(Grid::dense({.dp = 2}), world);
        test::UnitNet net;
        Zero zero(params_of(net), net.units(), mesh,
                  {.stage = stage, .persistence_threshold = 50, .accumulate = at::kDouble, .reduce = at::kDouble},
                  {.optimizer = {}, .master = at::kDouble, .states = at::kDouble});
        net.units(&zero.chunk());
        Executor executor(schedule::of_one_rank(schedule::parse_program(program)), zero, mesh);
        // A second use of a weight that is written in place; stage 3 has freed it by then.
        const auto loss = [&](const at::Tensor& rows) {
          const at::Tensor first = net.loss(rows);
          if (stage == 3) return first;
          return first + kernels::linear(rows, net.named_parameters()["layer1.weight"]).square().sum();
        };
        executor.run(
            {.forward = whole_model([&](int m) { return loss(test::rows().narrow(0, 8 * m + 4 * mesh.rank(), 4)); }),
             .loss_gradient = [] { return at::scalar_tensor(0.5, at::kDouble); }});
        EXPECT_EQ(zero.params().live(), 0);
        zero.finish_gradients();
        if (mesh.rank() != 0) return;
        sums.emplace_back();
        for (std::size_t b = 0; b < zero.partition().num_buckets(); ++b)
          sums.back().push_back(zero.gradients().shard(b).clone());
      });
    for (std::size_t b = 0; b < sums[0].size(); ++b)
      for (const auto& other : sums) EXPECT_TRUE(sums[0][b].equal(other[b])) << "stage " << stage << " bucket " << b;
    EXPECT_GT(sums[0].back().norm().item<double>() + sums[0].front().norm().item<double>(), 0);
  }
}

TEST(Executor, RefusesWhatItCannotRun) {
  run_ranks(1, [](World& world) {
    Mesh mesh(Grid::dense({}), world);
    test::UnitNet net;
    Zero zero(params_of(net), net.units(), mesh, {.accumulate = at::kDouble},
              {.optimizer = {}, .master = at::kDouble, .states = at::kDouble});
    EXPECT_THROW(Executor(schedule::of_one_rank(schedule::parse_program("1F0 1B0")), zero, mesh), InternalError);
    EXPECT_THROW(Executor(schedule::of_one_rank(schedule::parse_program("0F0")), zero, mesh), InternalError);
    EXPECT_EQ(message_of<InternalError>(
                  [&] { Executor(schedule::of_one_rank(schedule::parse_program("0F0 0I0 0W0")), mesh, at::kCPU); }),
              "schedule one rank: action 0I0 computes a part of a backward, which needs Zero");
    Executor backward_first(schedule::of_one_rank(schedule::parse_program("0B0 0F0")), zero, mesh);
    EXPECT_THROW(backward_first.run({.forward = whole_model([&](int) { return net.loss(test::rows()); }),
                                     .loss_gradient = [] { return at::Tensor(); }}),
                 InternalError);
  });
}

}  // namespace
}  // namespace trireme
