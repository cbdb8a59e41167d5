#include "trireme/train/trace/device_clock.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/stopwatch.hpp"

namespace trireme {
namespace {

TEST(DeviceClock, WorkIsDoneAtTheNextMark) {
  const std::vector<DeviceMark> marks{{100, 100}, {110, 400}, {120, 900}};
  EXPECT_EQ(device_time(marks, 90), 100);
  EXPECT_EQ(device_time(marks, 110), 400);
  EXPECT_EQ(device_time(marks, 111), 900);
  EXPECT_EQ(device_time(marks, 121), 121) << "after the last mark";
  EXPECT_EQ(device_time({}, 5), 5) << "a CPU";
}

TEST(DeviceClock, ACpuHasNoMarks) {
  DeviceClock clock(at::kCPU);
  const std::int64_t before = steady_ns(), begin = clock.start();
  EXPECT_LE(before, begin);
  clock.mark(steady_ns());
  EXPECT_TRUE(clock.take().empty());
}

TEST(DeviceClock, AGpuIsBehindTheHost) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  const at::Device gpu(at::kCUDA, 0);
  const at::Tensor x = at::randn({4096, 4096}, gpu);
  at::matmul(x, x);  // loads what it needs
  DeviceClock clock(gpu);
  const std::int64_t begin = clock.start();
  at::Tensor y = x;
  for (int i = 0; i < 20; ++i) y = at::matmul(x, x);
  const std::int64_t enqueued = steady_ns();
  clock.mark(enqueued);
  const std::vector<DeviceMark> marks = clock.take();
  const std::int64_t done = steady_ns();
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_EQ(marks[0].device_ns, begin);
  EXPECT_GT(marks[1].device_ns, enqueued) << "20 products of 4096 take longer than their launches";
  EXPECT_LE(marks[1].device_ns, done + 1'000'000);
  EXPECT_TRUE(clock.take().empty());
}

}  // namespace
}  // namespace trireme
