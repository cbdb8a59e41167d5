#include "trireme/comm/calls/flight_recorder.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/testing/gloo_threads.hpp"

namespace trireme {
namespace {

/// Rank 1 arrives 30 ms after rank 0 has begun the call: it has lasted that long, in every check mode.
TEST(FlightRecorder, CallsOfTheStepHaveALength) {
  for (const CheckMode check : {CheckMode::off, CheckMode::fast, CheckMode::strict}) {
    std::atomic<const FlightRecorder*> of_rank_0 = nullptr;
    run_gloo_threads(2,
                     [&](World& world) {
                       Mesh mesh(Grid::dense({.dp = 2}), world);
                       if (world.rank() == 0) of_rank_0 = &world.recorder();
                       const auto has_begun = [&] {
                         return of_rank_0 != nullptr && !of_rank_0.load()->step_calls().empty();
                       };
                       while (world.rank() == 1 && !has_begun()) std::this_thread::yield();
                       if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(30));
                       mesh.world_group().all_reduce(at::ones({4})).wait();
                       mesh.world_group().barrier().wait();
                       const std::vector<CallRecord> calls = world.recorder().step_calls();
                       ASSERT_EQ(calls.size(), 2u);
                       for (const CallRecord& call : calls) EXPECT_GT(call.finished_ns, call.started_ns);
                       if (world.rank() == 0) {
                         EXPECT_GT(calls[0].finished_ns - calls[0].started_ns, 20'000'000);
                       }
                       EXPECT_GE(calls[1].started_ns, calls[0].finished_ns);
                     },
                     {.check = check});
  }
}

TEST(FlightRecorder, CountsCheckpointsWhereALauncherCanRead) {
  FlightRecord shared;
  FlightRecorder recorder(0, 1, &shared);
  EXPECT_EQ(shared.checkpoints, 0u);
  recorder.checkpoint_committed();
  recorder.checkpoint_committed();
  EXPECT_EQ(shared.checkpoints, 2u);
  const FlightRecorder next_attempt(0, 1, &shared);
  EXPECT_EQ(shared.checkpoints, 0u) << "each attempt counts its own";
}

TEST(FlightRecorder, ACallMayEndInTheNextStep) {
  run_ranks(2, [](World& world) {
    Mesh mesh(Grid::dense({.dp = 2}), world);
    Pending late = mesh.world_group().all_reduce(at::ones({4}));
    mesh.end_step();
    mesh.world_group().barrier().wait();
    std::move(late).wait();
    const std::vector<CallRecord> calls = world.recorder().step_calls();
    ASSERT_GE(calls.size(), 1u);
    EXPECT_EQ(calls.back().op, Op::barrier);
    EXPECT_GT(calls.back().finished_ns, 0);
  });
}

}  // namespace
}  // namespace trireme
