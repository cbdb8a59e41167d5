#include "trireme/train/step/step_agreement.hpp"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"

namespace trireme {
namespace {

TEST(Agree, EveryRankKnowsTheSumOfTheLossesTheHighestPeakAndTheStop) {
  constexpr std::int64_t kBytes = (std::int64_t{1} << 40) + 1;  // no float32 has this many digits
  run_ranks(4, [&](World& world) {
    Mesh mesh(Grid::dense({.dp = 2, .tp = 2}), world);
    const int rank = world.rank();
    const at::Tensor loss = at::full({}, mesh.coord(Axis::dp) == 0 ? 1.5 : 2.25, at::kDouble);  // equal along tp
    const StepAgreement agreed = agree(loss,
                                       {.stop = rank == 3 ? std::optional(ExitCode::preempted) : std::nullopt,
                                        .failed = rank == 1,
                                        .peak_bytes = rank == 2 ? kBytes : rank},
                                       mesh);
    EXPECT_EQ(agreed.loss_sum, 3.75);
    EXPECT_EQ(agreed.peak_bytes, kBytes) << "it is rank 2's, on every rank";
    EXPECT_EQ(agreed.stop, ExitCode::preempted);
    EXPECT_TRUE(agreed.failed);
    EXPECT_FALSE(agree(loss, {}, mesh).stop);
    EXPECT_FALSE(agree(loss, {}, mesh).failed);
  });
}

TEST(Agree, RankZeroKnowsTheTimesOfAll) {
  run_ranks(3, [&](World& world) {
    Mesh mesh(Grid::dense({.dp = 3}), world);
    const double rank = world.rank();
    const StepAgreement agreed =
        agree(at::full({}, 0.0, at::kDouble),
              {.bubble = rank / 8,
               .time = {.elapsed = 8, .data = rank, .forward = 1, .idle = 0.5, .waited = rank, .update = 0.25},
               .last_action = 4 + rank},
              mesh);
    EXPECT_EQ(agreed.time.elapsed, 24);
    EXPECT_EQ(agreed.time.data, 3);
    EXPECT_EQ(agreed.time.forward, 3);
    EXPECT_EQ(agreed.time.backward, 0);
    EXPECT_EQ(agreed.time.update, 0.75);
    EXPECT_EQ(agreed.own_work, (std::vector<double>{7.5, 6.5, 5.5}));
    EXPECT_EQ(agreed.last_actions, (std::vector<double>{4, 5, 6}));
    EXPECT_EQ(agreed.bubbles, (std::vector<double>{0, 0.125, 0.25}));
    EXPECT_EQ(agreed.bubble, 0.25);
  });
}

}  // namespace
}  // namespace trireme
