#include "trireme/module/agreed_failure.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

template <class E>
void expect_on_all_ranks(const std::function<void()>& action, const std::string& told) {
  run_ranks(3, [&](Group& group) {
    const Failure own = group.rank() == 1 ? failure_of(action) : Failure{};
    EXPECT_EQ(message_of<E>([&] { agree_on(group, at::kCPU, own); }), told);
  });
}

TEST(AgreedFailure, KeepsTheTypeOfTheError) {
  expect_on_all_ranks<ConfigError>([] { throw ConfigError("a"); }, "rank 1: a");
  expect_on_all_ranks<DataError>([] { throw DataError("two\nlines"); }, "rank 1: two\nlines");
  expect_on_all_ranks<InternalError>([] { throw InternalError("b"); }, "rank 1: b");
  expect_on_all_ranks<SecurityError>([] { throw SecurityError("c"); }, "rank 1: c");
  expect_on_all_ranks<StorageError>([] { throw StorageError("f"); }, "rank 1: f");
  expect_on_all_ranks<ComparisonFailed>([] { throw ComparisonFailed("g"); }, "rank 1: g");
  expect_on_all_ranks<OutOfMemory>([] { throw std::bad_alloc(); }, "rank 1: std::bad_alloc");
  expect_on_all_ranks<CheckpointError>([] { throw std::runtime_error("d"); }, "rank 1: d");
  EXPECT_THROW(failure_of([] { throw CommError(CommError::Kind::peer_lost, "e"); }), CommError);
}

TEST(AgreedFailure, WordsOfAllRanks) {
  run_ranks(3, [](Group& group) {
    const Failure none = failure_of([] {});
    EXPECT_THAT(agree_on(group, at::kCPU, none, std::string(static_cast<std::size_t>(group.rank()), 'x')),
                testing::ElementsAre("", "x", "xx"));
  });
}

TEST(AgreedFailure, TextOfOneRank) {
  run_ranks(3, [](Group& group) {
    const std::string own = text("of rank ", group.rank());
    EXPECT_EQ(broadcast_text(group, at::kCPU, own), "of rank 0");
    EXPECT_EQ(broadcast_text(group, at::kCPU, own, 2), "of rank 2");
    EXPECT_EQ(broadcast_text(group, at::kCPU, group.rank() == 0 ? "" : own), "");
  });
}

}  // namespace
}  // namespace trireme
