#include "trireme/data/sampling/validation.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "trireme/testing/layout_helpers.hpp"
#include "trireme/testing/memory_tokens.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;

RC_GTEST_PROP(ValidationProperty, SharesNoTokenWithTrainingOfAnyStage, ()) {
  SamplingPlan plan{.seed = static_cast<std::uint64_t>(pick(0, 99)), .global_batch_size = 20};
  plan.validation_fraction = pick(10, 50) / 100.0;
  const SharedTokens a = counted_tokens(pick(300, 900), "a"), b = counted_tokens(pick(300, 900), "b");
  plan.stages = {{.start_step = 1, .seq_len = pick(1, 20), .sources = {{a}}},
                 {.start_step = 16, .seq_len = pick(1, 20), .sources = {{b}, {a}}}};
  const std::int64_t seq_len = pick(1, 20);
  const ValidationSet validation(plan, seq_len);
  std::vector<std::vector<bool>> held_out(2, std::vector<bool>(1000));  // by source and token
  for (std::int64_t i = 0; i < validation.size(); ++i) {
    const Sample sample = validation.at(i);
    RC_ASSERT(sample.source == (sample.tokens->name() == "a" ? 0U : 1U));
    for (std::int64_t t = 0; t <= seq_len; ++t)
      held_out[sample.source][static_cast<std::size_t>(sample.first_token + t)] = true;
  }
  const Sampler sampler(plan);
  for (std::int64_t step = 1; step < 31; ++step)
    for (const Sample& sample : sampler.samples(step, {0, 20}))
      for (std::int64_t t = 0; t <= sampler.seq_len(step); ++t)
        if (held_out[sample.source][static_cast<std::size_t>(sample.first_token + t)]) RC_FAIL("trained on");
}

RC_GTEST_PROP(ValidationProperty, IsReadOnceInOrderByAnyNumberOfRanks, ()) {
  const std::vector<SharedTokens> sources{counted_tokens(pick(20, 200), "a"), counted_tokens(pick(20, 200), "b")};
  const ValidationSet validation(sources, pick(1, 10), toss() ? 0 : pick(1, 30));
  const std::int64_t mbs = pick(1, 5), dp = pick(1, 8), batches = validation.num_batches(mbs, dp);
  std::int64_t row = 0;
  for (std::int64_t batch = 0; batch < batches; ++batch)
    for (std::int64_t rank = 0; rank < dp; ++rank)
      for (const Sample& sample : validation.samples(batch, mbs, dp, rank)) {
        RC_ASSERT(sample == validation.at(row));
        RC_ASSERT(sample.row == row);
        RC_ASSERT((sample.tokens == nullptr) == (row >= validation.size()));
        ++row;
      }
  RC_ASSERT(row >= validation.size() && row - validation.size() < mbs * dp);
  for (std::int64_t i = 1; i < validation.size(); ++i) {
    const Sample before = validation.at(i - 1), sample = validation.at(i);
    RC_ASSERT(sample.source > before.source || sample.window > before.window);
  }
}

TEST(ValidationSet, TakesSamplesFromAllOfASource) {
  const ValidationSet all({counted_tokens(101)}, 10), some({counted_tokens(101)}, 10, 4),
      more({counted_tokens(101)}, 10, 99);
  EXPECT_EQ(all.size(), 10);
  EXPECT_EQ(more.size(), 10);
  EXPECT_EQ(some.size(), 4);
  std::vector<std::int64_t> windows;
  for (std::int64_t i = 0; i < some.size(); ++i) windows.push_back(some.at(i).window);
  EXPECT_EQ(windows, (std::vector<std::int64_t>{0, 2, 5, 7}));
  EXPECT_EQ(all.at(3).first_token, 30);
  EXPECT_EQ(all.seq_len(), 10);
}

TEST(ValidationSet, WrongNumbersAreNamed) {
  const SharedTokens tokens = counted_tokens(1000, "data/a.ds");
  SamplingPlan plan{.stages = {{.seq_len = 10, .sources = {{tokens}}}}};
  EXPECT_THAT(message_of<DataError>([&] { ValidationSet(plan, 10); }),
              HasSubstr("data/a.ds has 0 of 1,000 tokens for validation, a sample needs 11"));
  plan.validation_fraction = 0.005;
  EXPECT_THAT(message_of<DataError>([&] { ValidationSet(plan, 10); }), HasSubstr("has 5 of 1,000 tokens"));
  EXPECT_THROW(ValidationSet(std::vector<SharedTokens>{}, 10), ConfigError);
  EXPECT_THROW(ValidationSet({tokens}, 0), ConfigError);
  EXPECT_THROW(ValidationSet({tokens}, 10, -1), ConfigError);
  EXPECT_THROW(ValidationSet({tokens}, 10).num_batches(0), ConfigError);
  EXPECT_THROW(ValidationSet({tokens}, 10).samples(0, 1, 2, 2), ConfigError);
}

}  // namespace
}  // namespace trireme::data
