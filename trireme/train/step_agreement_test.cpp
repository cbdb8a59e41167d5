#include "trireme/train/step_agreement.hpp"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trireme/comm/thread_world.hpp"

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

}  // namespace
}  // namespace trireme
