#include "trireme/comm/wait_together.hpp"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "trireme/comm/thread_world.hpp"

namespace trireme {
namespace {

/// Rank 1 works three times as long as a call may take.
TEST(WaitTogether, WorkMayTakeLongerThanACall) {
  constexpr double kLimit = 0.5;
  std::atomic<bool> is_done = false;
  run_ranks(2,
            [&](World& world) {
              const std::future<void> work = std::async(std::launch::async, [&] {
                if (world.rank() != 1) return;
                std::this_thread::sleep_for(std::chrono::duration<double>(3 * kLimit));
                is_done = true;
              });
              wait_together(world.control(), work);
              EXPECT_TRUE(is_done) << "rank " << world.rank() << " went on before rank 1 was ready";
            },
            {.timeout_s = kLimit});
}

}  // namespace
}  // namespace trireme
