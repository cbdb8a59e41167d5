#include "trireme/train/save/storage_watch.hpp"

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

void wait(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

TEST(StorageWatch, EndsTheProcessWhenAnOperationNeverReturns) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        StorageWatch watch({.limits = {.warning_s = 0.2, .timeout_s = 0.6},
                            .path = "/data/step-8",
                            .on_stall = "the checkpoint is saved"});
        watch.run([] { wait(60); });
      },
      testing::ExitedWithCode(static_cast<int>(ExitCode::storage)),
      testing::AllOf(testing::HasSubstr("warning: /data/step-8: the storage does not respond"),
                     testing::HasSubstr("error: /data/step-8: the storage does not respond"),
                     testing::HasSubstr("the checkpoint is saved"), testing::HasSubstr("stall_timeout_s")));
}

TEST(StorageWatch, LetsSlowOperationsGoOnWithProgressAndTimeBetweenThem) {
  std::atomic<int> alive = 0;
  StorageWatch watch({.limits = {.warning_s = 10, .timeout_s = 0.6}, .is_alive = [&alive] { ++alive; }});
  watch.run([&watch] {
    for (int i = 0; i < 5; ++i) {
      wait(0.25);
      watch.progress();
    }
  });
  EXPECT_GE(alive, 3);
  wait(1);  // no operation
  watch.run([] { wait(0.2); });
}

}  // namespace
}  // namespace trireme
