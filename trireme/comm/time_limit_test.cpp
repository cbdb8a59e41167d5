#include "trireme/comm/time_limit.hpp"

#include <chrono>
#include <thread>

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/testing/gloo_threads.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void pause(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

using RunRanks = std::function<void(int, const CommOptions&, const std::function<void(World&)>&)>;

std::vector<RunRanks> both_backends() {
  return {[](int n, const CommOptions& options, const auto& body) { run_worlds(n, options, body); },
          [](int n, const CommOptions& options, const auto& body) { run_gloo_threads(n, body, options); }};
}

TEST(TimeLimit, IsOfTheCallsInItsScope) {
  const CommOptions options{.timeout_s = 0.5, .hang_folder = testing::TempDir() + "hang"};
  for (const RunRanks& run : both_backends()) {
    run(2, options, [](World& world) {
      Mesh mesh(Grid::dense({.dp = 2}), world);
      const TimeLimit patient(world, 20);
      if (world.rank() == 0) pause(1);
      mesh.world_group().barrier().wait();
      mesh.world_group().all_gather(at::ones({3})).wait();
    });
    EXPECT_THAT(message_of<CommError>([&] {
                  run(2, options, [](World& world) {
                    Mesh mesh(Grid::dense({.dp = 2}), world);
                    {
                      const TimeLimit patient(world, 20);
                    }
                    if (world.rank() == 0) pause(1.5);
                    mesh.world_group().barrier().wait();
                  });
                }),
                HasSubstr("timed out"));
  }
}

/// Gloo's own limit of a message is that of the connection's start: 300 s.
TEST(TimeLimit, IsOfMessagesToo) {
  const CommOptions options{.timeout_s = 0.5, .hang_folder = testing::TempDir() + "hang"};
  const auto receive = [](World& world, double late) {
    Mesh mesh(Grid::dense({.pp = 2}), world);
    const TimeLimit patient(world, late > 2 ? 0.6 : 20);
    Group& pp = mesh.group(Axis::pp);
    if (pp.rank() == 0) {
      pause(late);
      pp.send(at::ones({3}), 1).wait();
    } else {
      pp.recv_(at::empty({3}), 0).wait();
    }
  };
  for (const RunRanks& run : both_backends()) {
    run(2, options, [&](World& world) { receive(world, 1); });
    EXPECT_THAT(message_of<CommError>([&] { run(2, options, [&](World& world) { receive(world, 2.5); }); }),
                HasSubstr("recv f32[3] from 0"));
  }
}

/// The worker is busy for four times the limit, and says so.
TEST(LongWork, KeepsTheOthersWaitingWhileItProgresses) {
  const CommOptions options{.timeout_s = 0.4, .init_timeout_s = 1, .hang_folder = testing::TempDir() + "hang"};
  for (const RunRanks& run : both_backends())
    run(3, options, [](World& world) {
      Mesh mesh(Grid::dense({.dp = 3}), world);
      const LongWork work(world, 1);
      for (int i = 0; world.rank() == 1 && i < 20; ++i) {
        pause(0.1);
        work.progress();
      }
      mesh.world_group().barrier().wait();
    });
}

TEST(LongWork, WithoutProgressIsNamed) {
  const CommOptions options{.timeout_s = 0.3, .init_timeout_s = 0.5};
  EXPECT_THAT(message_of<CommError>([&] {
                run_worlds(2, options, [](World& world) {
                  Mesh mesh(Grid::dense({.dp = 2}), world);
                  const LongWork work(world, 1);
                  if (world.rank() == 1) pause(1.5);
                  mesh.world_group().barrier().wait();
                });
              }),
              AllOf(HasSubstr("timed out after 0.5 s"), HasSubstr("missing: rank 1")));
}

/// Over Gloo the call itself has no timeout, and the watchdog ends the process.
TEST(LongWorkDeathTest, WithoutProgressIsNamedByTheWatchdog) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TempFolder folder;
  const CommOptions options{.timeout_s = 0.3, .init_timeout_s = 0.5, .hang_folder = folder.path().string()};
  EXPECT_EXIT(run_gloo_threads(
                  2,
                  [](World& world) {
                    Mesh mesh(Grid::dense({.dp = 2}), world);
                    const LongWork work(world, 1);
                    if (world.rank() == 1) pause(60);
                    mesh.world_group().barrier().wait();
                  },
                  options),
              testing::ExitedWithCode(static_cast<int>(ExitCode::hang_or_mismatch)),
              "barrier #2 on group world.0,1. timed out after(.|\n)*missing: rank 1");
}

/// In a large world a rank answers later, and must be given that time.
TEST(Watchdog, WaitsForAnAnswerLongerThanAHeartbeat) {
  for (const int world : {1, 64, 350, 400, 1000, 10'000})
    for (const bool late : {false, true})
      EXPECT_GT(Watchdog::patience(world, late), Watchdog::beat(world) + std::chrono::milliseconds(100)) << world;
  EXPECT_EQ(Watchdog::beat(2), std::chrono::milliseconds(500));
}

}  // namespace
}  // namespace trireme
