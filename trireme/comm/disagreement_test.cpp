#include "trireme/comm/disagreement.hpp"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/testing/gloo_threads.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Disagreement, IsBetweenTheFirstRankAndTheOneThatDiffers) {
  const CallsHash same{.group = 7, .hash = 1}, other{.group = 7, .hash = 2};
  EXPECT_FALSE(first_disagreement({{same}, {same}, {}, {same}}));
  const auto found = first_disagreement({{}, {same}, {same}, {other}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->group, 7u);
  EXPECT_EQ(found->a, 1);
  EXPECT_EQ(found->b, 3);
}

TEST(Disagreement, OfMessagesIsBetweenTheirEnds) {
  const CallsHash sent{7, 5, 2, 0};
  EXPECT_FALSE(first_disagreement({{sent}, {}, {sent}}));
  for (const auto& by_rank : {std::vector<std::vector<CallsHash>>{{}, {}, {sent}}, {{{7, 6, 2, 0}}, {}, {sent}}}) {
    const auto found = first_disagreement(by_rank);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->a, 2);
    EXPECT_EQ(found->b, 0);
  }
}

/// A step of 301 calls, of which the last differs on one rank of eight: the report moves the calls of two ranks only.
TEST(Disagreement, IsFoundWithFewBytes) {
  std::atomic<std::int64_t> bytes = 0;
  std::atomic<int> named = 0;
  run_gloo_threads(8, [&](World& world) {
    Mesh mesh(Grid::dense({.dp = 4, .tp = 2}), world);
    Group& dp = mesh.group(Axis::dp);
    for (int i = 0; i < 300; ++i) mesh.group(Axis::tp).all_reduce(at::ones({1})).wait();
    dp.all_reduce(at::ones({4}, world.rank() == 5 ? at::kFloat : at::kInt))
        .wait();  // as many bytes: Gloo does not see it
    const std::int64_t before = world.control().traffic().bytes;
    const std::string words = message_of<CommError>([&] { mesh.end_step(); });
    bytes += world.control().traffic().bytes - before;
    const std::string pair = "ranks 1 and 5";
    EXPECT_THAT(words, HasSubstr(pair));
    if (words.find("all_reduce sum f32[4]") != std::string::npos) ++named;
  });
  EXPECT_EQ(named, 2);  // the two that differ; the others say who knows
  EXPECT_LT(bytes, 3 * 301 * static_cast<std::int64_t>(sizeof(CallRecord)));
}

}  // namespace
}  // namespace trireme
