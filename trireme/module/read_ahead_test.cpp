#include "trireme/module/read_ahead.hpp"

#include <atomic>
#include <chrono>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/self_group.hpp"
#include "trireme/module/sharded_loader.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Sample i is i. Notes what is read.
class NotedDataset final : public Dataset {
 public:
  std::int64_t size() const override { return 12; }
  Samples get(const std::vector<std::int64_t>& indices) const override {
    EXPECT_EQ(++calls_at_once_, 1) << "a dataset need not be safe for threads";
    const std::lock_guard lock(mutex_);
    read_.push_back(indices[0]);
    with_gradients_ = at::GradMode::is_enabled();
    --calls_at_once_;
    require<DataError>(indices[0] != fails_at, "sample ", fails_at, " cannot be read");
    return {{at::tensor(indices)}, {}};
  }
  std::vector<std::int64_t> read() const {
    const std::lock_guard lock(mutex_);
    return read_;
  }
  bool with_gradients() const { return with_gradients_; }
  std::int64_t fails_at = -1;

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::int64_t> read_;
  mutable std::atomic<int> calls_at_once_ = 0;
  mutable std::atomic<bool> with_gradients_ = true;
};

/// Batches of two, in order.
ShardedLoader loader_of(const std::shared_ptr<NotedDataset>& dataset, std::int64_t prefetch) {
  return shard(dataset, SelfGroup(), {.batch_size = 2, .shuffle = false, .prefetch = prefetch});
}

/// Waits until this many were read, and a moment longer, for those that should not be.
std::vector<std::int64_t> read_after(const NotedDataset& dataset, std::size_t count) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (dataset.read().size() < count && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return dataset.read();
}

TEST(ReadAheadOfLoops, TheSameBatches) {
  for (const std::int64_t prefetch : {0, 1, 2, 5, 100})
    for (const std::int64_t first : {0, 4, 6}) {
      const auto dataset = std::make_shared<NotedDataset>();
      const ShardedLoader loader = loader_of(dataset, prefetch);
      std::int64_t step = first;
      for (const Samples& batch : loader.epoch(0, first))
        EXPECT_TRUE(batch.inputs[0].equal(loader.batch(0, step++).inputs[0])) << prefetch << " " << step;
      EXPECT_EQ(step, loader.steps());
    }
}

TEST(ReadAheadOfLoops, IsBoundedAndInOrder) {
  const auto dataset = std::make_shared<NotedDataset>();
  const ShardedLoader loader = loader_of(dataset, 2);
  {
    auto it = loader.epoch(0).begin();
    EXPECT_THAT(read_after(*dataset, 2), ElementsAre(0, 2)) << "before anything is asked for";
    EXPECT_EQ((*it).inputs[0][1].item<std::int64_t>(), 1);
    EXPECT_THAT(read_after(*dataset, 3), ElementsAre(0, 2, 4));
    EXPECT_EQ((*it).inputs[0][1].item<std::int64_t>(), 1) << "asked for again";
    ++it, ++it, ++it;  // two are left out
    EXPECT_EQ((*it).inputs[0][0].item<std::int64_t>(), 6);
    EXPECT_THAT(read_after(*dataset, 7), ElementsAre(0, 2, 4, 0, 6, 8, 10));
    const auto copy = it;
    ++it;
    EXPECT_EQ((*it).inputs[0][0].item<std::int64_t>(), 8);
    EXPECT_EQ((*copy).inputs[0][0].item<std::int64_t>(), 6);
  }
  const long users = dataset.use_count();
  EXPECT_EQ(users, 2) << "this test and the loader: the thread has ended";
}

TEST(ReadAheadOfLoops, ErrorsComeWithTheirBatch) {
  for (const std::int64_t prefetch : {0, 2}) {
    const auto dataset = std::make_shared<NotedDataset>();
    dataset->fails_at = 4;
    const ShardedLoader loader = loader_of(dataset, prefetch);
    std::int64_t step = 0;
    for (auto it = loader.epoch(0).begin(); it != loader.epoch(0).end(); ++it, ++step) {
      const std::string told = message_of<DataError>([&] { EXPECT_EQ((*it).inputs[0].numel(), 2); });
      EXPECT_EQ(told, step == 2 ? "sample 4 cannot be read" : "no error") << step;
    }
    EXPECT_EQ(step, 6) << "those after it are read";
  }
}

TEST(ReadAheadOfLoops, EndsWhenALoopIsLeft) {
  const auto dataset = std::make_shared<NotedDataset>();
  const ShardedLoader loader = loader_of(dataset, 1);
  for (const Samples& batch : loader.epoch(0)) {
    EXPECT_EQ(batch.inputs[0].numel(), 2);
    break;
  }
  EXPECT_LE(dataset->read().size(), 2U);
  EXPECT_EQ(dataset.use_count(), 2);
}

TEST(ReadAheadOfLoops, HasTheGradientModeOfTheLoop) {
  for (const bool enabled : {true, false}) {
    const at::AutoGradMode mode(enabled);
    const auto dataset = std::make_shared<NotedDataset>();
    const ShardedLoader loader = loader_of(dataset, 2);
    for (const Samples& batch : loader.epoch(0)) EXPECT_EQ(batch.inputs[0].numel(), 2);
    EXPECT_EQ(dataset->with_gradients(), enabled);
  }
}

TEST(ReadAheadOfLoops, RefusesFewerThanNone) {
  EXPECT_THAT(message_of<ConfigError>([] { loader_of(std::make_shared<NotedDataset>(), -1); }),
              HasSubstr("shard: prefetch -1: must be a number of batches"));
}

}  // namespace
}  // namespace trireme
