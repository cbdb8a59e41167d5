#include "trireme/train/save/stall_watch.hpp"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"

namespace trireme {
namespace {

/// Rank 1 works three times as long as a call may take; its storage is what it warns of, once.
TEST(StallWatch, AllRanksWaitForTheSlowest) {
  constexpr double kLimit = 0.5;
  std::atomic<bool> is_done = false;
  std::atomic<int> warnings = 0;
  run_ranks(2,
            [&](World& world) {
              const std::future<void> work = std::async(std::launch::async, [&] {
                if (world.rank() != 1) return;
                std::this_thread::sleep_for(std::chrono::duration<double>(3 * kLimit));
                is_done = true;
              });
              StallWatch watch({.warning_s = kLimit, .timeout_s = 100});
              wait_for_all_ranks(world.control(), work, [&]() -> std::string {
                if (watch.look(0) == StallWatch::State::fine) return "";
                ++warnings;
                return "slow";
              });
              EXPECT_TRUE(is_done) << "rank " << world.rank() << " went on before rank 1 was ready";
            },
            {.timeout_s = kLimit});
  EXPECT_EQ(warnings, 1);
}

TEST(StallWatch, ProgressEndsAStall) {
  StallWatch watch({.warning_s = 0.05, .timeout_s = 0.3});
  const auto after = [&](int ms, std::uint64_t progress) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    return watch.look(progress);
  };
  EXPECT_EQ(watch.look(1), StallWatch::State::fine);
  EXPECT_EQ(after(100, 1), StallWatch::State::warn);
  EXPECT_EQ(after(10, 1), StallWatch::State::fine) << "said once";
  EXPECT_EQ(after(10, 2), StallWatch::State::fine);
  EXPECT_EQ(after(100, 2), StallWatch::State::warn) << "another stall";
  EXPECT_EQ(after(300, 2), StallWatch::State::stalled);
}

}  // namespace
}  // namespace trireme
