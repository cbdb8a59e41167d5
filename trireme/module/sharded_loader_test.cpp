#include "trireme/module/sharded_loader.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using Indices = std::vector<std::int64_t>;

std::shared_ptr<const Dataset> numbers(std::int64_t count) {
  return tensor_dataset(at::arange(count).view({-1, 1}), at::arange(count) * 10);
}

/// The batches of an epoch, each the parts of all ranks one after the other, read through the loop.
std::vector<Indices> batches_of(std::int64_t samples, int ranks, const ShardOptions& options, int epoch = 0) {
  std::map<int, std::vector<Indices>> of_rank;
  std::mutex mutex;
  run_ranks(ranks, [&](Group& group) {
    const ShardedLoader loader = shard(numbers(samples), group, options);
    std::vector<Indices> own;
    for (const Samples& batch : loader.epoch(epoch)) {
      const at::Tensor x = batch.inputs[0].flatten();
      EXPECT_TRUE(batch.targets.equal(x * 10));
      own.emplace_back(x.data_ptr<std::int64_t>(), x.data_ptr<std::int64_t>() + x.numel());
    }
    EXPECT_EQ(std::ssize(own), loader.steps());
    for (std::int64_t step = 0; step < loader.steps(); ++step) {
      const at::Tensor part = at::full({1}, std::ssize(own[static_cast<std::size_t>(step)]));
      EXPECT_EQ(group.all_reduce(part).wait().item<std::int64_t>(), loader.whole_batch(step));
    }
    const std::lock_guard lock(mutex);
    of_rank[group.rank()] = own;
  });
  std::vector<Indices> out(of_rank[0].size());
  for (std::size_t s = 0; s < out.size(); ++s) {
    std::size_t least = 1000, most = 0;
    for (const auto& [rank, own] : of_rank) {
      least = std::min(least, own[s].size());
      most = std::max(most, own[s].size());
      out[s].insert(out[s].end(), own[s].begin(), own[s].end());
    }
    EXPECT_LE(most - least, options.last == LastBatch::smaller ? 1U : 0U);
  }
  return out;
}

Indices joined_batches(const std::vector<Indices>& batches) {
  Indices out;
  for (const Indices& batch : batches) out.insert(out.end(), batch.begin(), batch.end());
  return out;
}

TEST(ShardedLoader, EverySampleOnceForAnyNumberOfRanks) {
  for (const std::int64_t samples : {1, 8, 29, 64})
    for (const bool shuffle : {false, true}) {
      const ShardOptions options{.batch_size = 8, .shuffle = shuffle, .seed = 3};
      const std::vector<Indices> one = batches_of(samples, 1, options, 2);
      Indices all = joined_batches(one), sorted(static_cast<std::size_t>(samples));
      std::iota(sorted.begin(), sorted.end(), 0);
      EXPECT_EQ(all == sorted, !shuffle || samples == 1);
      std::ranges::sort(all);
      EXPECT_EQ(all, sorted);
      for (const int ranks : {2, 4}) EXPECT_EQ(batches_of(samples, ranks, options, 2), one) << samples << " " << ranks;
    }
}

TEST(ShardedLoader, EpochsAndSeedsHaveOtherOrders) {
  const ShardOptions options{.batch_size = 8, .seed = 3};
  const std::vector<Indices> first = batches_of(64, 2, options, 0);
  EXPECT_NE(batches_of(64, 2, options, 1), first);
  EXPECT_NE(batches_of(64, 2, {.batch_size = 8, .seed = 4}, 0), first);
  EXPECT_EQ(batches_of(64, 2, options, 0), first);
}

TEST(ShardedLoader, WhatDoesNotFillABatch) {
  const auto with = [](LastBatch last, std::int64_t samples = 29) {
    return batches_of(samples, 4, {.batch_size = 8, .seed = 3, .last = last});
  };
  const std::vector<Indices> smaller = with(LastBatch::smaller), drop = with(LastBatch::drop),
                             pad = with(LastBatch::pad);
  EXPECT_EQ(smaller.back().size(), 5U);
  EXPECT_EQ(drop, std::vector<Indices>(smaller.begin(), smaller.end() - 1));
  ASSERT_EQ(pad.size(), 4U);
  Indices padded = smaller.back();
  padded.insert(padded.end(), smaller[0].begin(), smaller[0].begin() + 3);
  EXPECT_EQ(pad.back(), padded);
  EXPECT_EQ(with(LastBatch::pad, 3).at(0).size(), 8U) << "three samples, over and over";
}

/// Ten samples over four ranks: 3, 3, 2, 2.
TEST(ShardedLoader, ABatchThatRanksDoNotDivide) {
  const ShardOptions options{.batch_size = 10, .seed = 3};
  const std::vector<Indices> four = batches_of(29, 4, options);
  EXPECT_EQ(four, batches_of(29, 1, options));
  EXPECT_EQ(four.back().size(), 9U);
  run_ranks(4, [&](Group& group) {
    const ShardedLoader loader = shard(numbers(29), group, options);
    EXPECT_EQ(std::ssize(loader.indices(0, 0)), group.rank() < 2 ? 3 : 2);
    EXPECT_EQ(loader.whole_batch(0), 10);
    EXPECT_EQ(loader.whole_batch(2), 9);
  });
}

TEST(ShardedLoader, GoesOnAtAStep) {
  run_ranks(2, [&](Group& group) {
    const ShardedLoader loader = shard(numbers(29), group, {.batch_size = 8});
    std::int64_t step = 2;
    for (const Samples& batch : loader.epoch(1, 2))
      EXPECT_TRUE(batch.inputs[0].equal(loader.batch(1, step++).inputs[0]));
    EXPECT_EQ(step, loader.steps());
  });
}

TEST(ShardedLoader, RefusesWhatCannotBe) {
  const auto told = [](std::int64_t samples, int ranks, const ShardOptions& options) {
    return message_of<ConfigError>([&] { batches_of(samples, ranks, options); });
  };
  EXPECT_THAT(told(0, 1, {}), testing::HasSubstr("the dataset has no samples"));
  EXPECT_THAT(told(9, 4, {.batch_size = 3}),
              testing::HasSubstr("batches of 3 samples over 4 ranks: must be at least one"));
  for (const LastBatch last : {LastBatch::drop, LastBatch::pad})
    EXPECT_THAT(
        told(29, 4, {.batch_size = 10, .last = last}),
        testing::AllOf(testing::HasSubstr("batches of 10 samples over 4 ranks"),
                       testing::HasSubstr("must be a multiple of 4\n  fix: batch_size 12, or LastBatch::smaller")));
  EXPECT_THAT(told(9, 2, {.batch_size = 10, .last = LastBatch::drop}),
              testing::HasSubstr("9 samples are less than a batch of 10"));
  EXPECT_THAT(message_of<ConfigError>([] {
                run_ranks(1, [](Group& group) { shard(numbers(9), group, {.batch_size = 4}).indices(0, 3); });
              }),
              testing::HasSubstr("step 3: an epoch has the steps 0 to 2"));
}

}  // namespace
}  // namespace trireme
