#include "trireme/testing/conformance.hpp"

#include <atomic>
#include <functional>

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

/// Of ranks as threads over a real transport.
using RunWorlds = void (*)(int size, const std::function<void(World&)>& body, const CommOptions& options,
                           const c10::intrusive_ptr<c10d::Store>& store);

void expect_all_operations(RunWorlds run_worlds, int ranks) {
  std::atomic<int> checked = 0;
  const auto body = [&](World& world) {
    const auto group = world.make_group("world", first_ranks(world.size()));
    checked += Conformance(*group, at::kCPU).run();
  };
  run_worlds(ranks, body, {}, c10::make_intrusive<c10d::HashStore>());
  EXPECT_GT(checked, 300 * ranks);
}

void expect_small_operations(RunWorlds run_worlds, int ranks, const CommOptions& options) {
  const auto body = [](World& world) {
    const auto group = world.make_group("world", first_ranks(world.size()));
    Conformance(*group, at::kCPU).run({0, 1, 37});
  };
  run_worlds(ranks, body, options, c10::make_intrusive<c10d::HashStore>());
}

TEST_P(ConformanceOf, GlooThreads) { expect_all_operations(run_gloo_threads, GetParam()); }

TEST_P(ConformanceOf, SharedMemoryThreads) { expect_all_operations(run_shared_memory_threads, GetParam()); }

TEST_P(ConformanceOf, GlooThreadsDeterministicAndStrict) {
  expect_small_operations(run_gloo_threads, GetParam(), {.check = CheckMode::strict, .deterministic = true});
}

TEST_P(ConformanceOf, SharedMemoryThreadsStrict) {
  expect_small_operations(run_shared_memory_threads, GetParam(), {.check = CheckMode::strict});
}

}  // namespace
}  // namespace trireme
