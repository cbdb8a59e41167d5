#include "trireme/testing/conformance.hpp"

#include <atomic>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/comm/self_group.hpp"
#include "trireme/testing/gloo_threads.hpp"

namespace trireme {
namespace {

std::vector<int> first_ranks(int n) {
  std::vector<int> ranks;
  for (int r = 0; r < n; ++r) ranks.push_back(r);
  return ranks;
}

TEST(Conformance, Solo) {
  SelfGroup group;
  EXPECT_GT(Conformance(group, at::kCPU).run(), 300);
}

class ConformanceOf : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { at::set_num_threads(1); }  // the ranks are the parallelism
};
INSTANTIATE_TEST_SUITE_P(Ranks, ConformanceOf, testing::Values(1, 2, 3, 4), testing::PrintToStringParamName());

TEST_P(ConformanceOf, Threads) {
  std::atomic<int> checked = 0;
  run_ranks(GetParam(), [&](Group& group) { checked += Conformance(group, at::kCPU).run(); });
  EXPECT_GT(checked, 300 * GetParam());
}

TEST_P(ConformanceOf, GlooThreads) {
  std::atomic<int> checked = 0;
  run_gloo_threads(GetParam(), [&](World& world) {
    const auto group = world.make_group("world", first_ranks(world.size()));
    checked += Conformance(*group, at::kCPU).run();
  });
  EXPECT_GT(checked, 300 * GetParam());
}

TEST_P(ConformanceOf, GlooThreadsDeterministicAndStrict) {
  run_gloo_threads(GetParam(),
                   [&](World& world) {
                     const auto group = world.make_group("world", first_ranks(world.size()));
                     Conformance(*group, at::kCPU).run({0, 1, 37});
                   },
                   {.check = CheckMode::strict, .deterministic = true});
}

TEST_P(ConformanceOf, SharedMemoryThreads) {
  std::atomic<int> checked = 0;
  run_shared_memory_threads(GetParam(), [&](World& world) {
    const auto group = world.make_group("world", first_ranks(world.size()));
    checked += Conformance(*group, at::kCPU).run();
  });
  EXPECT_GT(checked, 300 * GetParam());
}

TEST_P(ConformanceOf, SharedMemoryThreadsStrict) {
  run_shared_memory_threads(GetParam(),
                            [&](World& world) {
                              const auto group = world.make_group("world", first_ranks(world.size()));
                              Conformance(*group, at::kCPU).run({0, 1, 37});
                            },
                            {.check = CheckMode::strict});
}

}  // namespace
}  // namespace trireme
