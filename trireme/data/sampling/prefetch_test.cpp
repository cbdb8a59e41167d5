#include "trireme/data/sampling/prefetch.hpp"

#include <atomic>
#include <chrono>
#include <future>

#include <gtest/gtest.h>

#include "trireme/data/sampling/synthetic.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::data {
namespace {

using namespace std::chrono_literals;

/// A batch that identifies itself.
void mark(std::int64_t step, std::int64_t microbatch, TokenBatch& out) { out.rows = {step, microbatch}; }

std::vector<std::int64_t> taken(Prefetch& prefetch, std::int64_t step, std::int64_t microbatch) {
  return prefetch.take(step, microbatch).rows;
}

TEST(Prefetch, EqualsMakingEachBatchWhenItIsAskedFor) {
  SamplingPlan plan{.seed = 3, .global_batch_size = 12};
  plan.stages = {{.start_step = 1, .seq_len = 32, .sources = {{std::make_shared<SyntheticTokens>(1, 50, 5000)}}},
                 {.start_step = 4, .seq_len = 64, .sources = {{std::make_shared<SyntheticTokens>(2, 50, 5000)}}}};
  const Sampler sampler(plan);
  const BatchMaker maker({.vocab_size = 50, .attend_across_documents = false});
  const BatchSplit split(12, 2, 2, 1);
  const auto make = [&](std::int64_t step, std::int64_t microbatch, TokenBatch& out) {
    maker.make(sampler.samples(step, split.rows(microbatch)), sampler.seq_len(step), out);
  };
  for (const std::size_t depth : {1U, 2U, 7U}) {
    Prefetch prefetch(make, split.num_microbatches(), 1, depth);
    for (std::int64_t step = 1; step <= 7; ++step)
      for (std::int64_t microbatch = 0; microbatch < split.num_microbatches(); ++microbatch) {
        TokenBatch expected, got = prefetch.take(step, microbatch);
        make(step, microbatch, expected);
        ASSERT_EQ(got, expected);
        if (step % 2 == 0) prefetch.recycle(std::move(got));
      }
  }
}

TEST(Prefetch, StaysAtMostDepthAhead) {
  std::atomic<int> made = 0;
  Prefetch prefetch([&](std::int64_t step, std::int64_t m, TokenBatch& out) { mark(step, m, out), ++made; }, 1, 1, 3);
  taken(prefetch, 1, 0);
  std::this_thread::sleep_for(30ms);
  EXPECT_LE(made, 4);
}

TEST(Prefetch, JumpsForwardsAndBackwards) {
  Prefetch prefetch(mark, 3, 5, 2);
  for (const auto& [step, m] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {5, 0}, {5, 1}, {5, 2}, {6, 0}, {100, 1}, {100, 2}, {101, 0}, {2, 0}, {2, 0}, {2, 2}, {3, 0}})
    EXPECT_EQ(taken(prefetch, step, m), (std::vector{step, m}));
  EXPECT_THROW(prefetch.take(1, 3), InternalError);
  for (int i = 0; i < 2000; ++i)
    EXPECT_EQ(taken(prefetch, i * 7 % 11, i % 3), (std::vector<std::int64_t>{i * 7 % 11, i % 3}));
}

TEST(Prefetch, AnErrorComesWithItsBatchOnly) {
  std::atomic<bool> broken = true;
  Prefetch prefetch(
      [&](std::int64_t step, std::int64_t m, TokenBatch& out) {
        require<DataError>(step != 3 || !broken, "step 3 is broken");
        mark(step, m, out);
      },
      1, 1, 4);
  EXPECT_EQ(taken(prefetch, 1, 0)[0], 1);
  std::this_thread::sleep_for(10ms);  // step 3 has failed by now
  EXPECT_EQ(taken(prefetch, 2, 0)[0], 2);
  EXPECT_EQ(message_of<DataError>([&] { prefetch.take(3, 0); }), "step 3 is broken");
  EXPECT_EQ(taken(prefetch, 4, 0)[0], 4);
  EXPECT_EQ(message_of<DataError>([&] { prefetch.take(3, 0); }), "step 3 is broken");
  broken = false;
  EXPECT_EQ(taken(prefetch, 3, 0)[0], 3);
}

TEST(Prefetch, EndsInAnyState) {
  for (int i = 0; i < 300; ++i) {
    Prefetch prefetch(mark, 2, 1, 1 + static_cast<std::size_t>(i % 3));
    if (i % 2 == 0) taken(prefetch, 1, 0);
    if (i % 5 == 0) taken(prefetch, 9, 1);
  }
  // Destroyed while a batch is being made: waits for that one, and only that one.
  std::promise<void> begun;
  std::atomic<int> made = 0;
  {
    const Prefetch prefetch(
        [&](std::int64_t, std::int64_t, TokenBatch&) {
          if (++made == 1) begun.set_value();
          std::this_thread::sleep_for(20ms);
        },
        1, 1, 5);
    begun.get_future().wait();
  }
  EXPECT_EQ(made, 1);
}

TEST(Prefetch, WrongNumbersAreNamed) {
  EXPECT_THROW(Prefetch(mark, 0), ConfigError);
  EXPECT_THROW(Prefetch(mark, 1, 1, 0), ConfigError);
}

}  // namespace
}  // namespace trireme::data
