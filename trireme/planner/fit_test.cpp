#include "trireme/planner/fit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/config_helpers.hpp"

namespace trireme::planner {
namespace {

Config eight_ranks(const Flags& more = {}) {
  Flags flags = {"--parallelism.dp", "8", "--parallelism.zero", "0", "--training.micro_batch_size", "8"};
  flags.insert(flags.end(), more.begin(), more.end());
  return load_good("model.preset = 'llama3.2-1b'\nmodel.dtype = 'bfloat16'\ntraining.seq_len = 2048\n", flags).config;
}

double bytes_of(const Config& config) { return predict_memory(config, "bfloat16", true).total(); }

/// What is proposed fits when it is set, and the batch is the same.
TEST(Fit, ProposesChangesThatFit) {
  const Config config = eight_ranks();
  for (const double share : {0.9, 0.6, 0.4, 0.2, 0.1}) {
    const double bytes = share * bytes_of(config);
    const std::vector<FittingChange> changes = nearest_that_fit(config, "bfloat16", true, bytes);
    ASSERT_FALSE(changes.empty()) << share;
    for (const FittingChange& change : changes) {
      EXPECT_LE(change.bytes, bytes);
      Flags flags;
      std::istringstream words(change.settings);
      for (std::string key, equals, value; words >> key >> equals >> value;) {
        if (value.ends_with(',')) value.pop_back();
        std::erase(value, '"');
        const auto old = std::ranges::find(flags, "--" + key);
        ASSERT_EQ(old, flags.end());
        flags.insert(flags.end(), {"--" + key, value});
      }
      // A later flag would be refused as given twice: the changed config is made from scratch.
      Flags base = {"--parallelism.dp",      "8", "--parallelism.zero", "0", "--training.micro_batch_size", "8",
                    "--training.grad_accum", "1"};
      for (std::size_t i = 0; i < base.size(); i += 2)
        if (std::ranges::find(flags, base[i]) == flags.end()) flags.insert(flags.end(), {base[i], base[i + 1]});
      const Config changed =
          load_good("model.preset = 'llama3.2-1b'\nmodel.dtype = 'bfloat16'\ntraining.seq_len = 2048\n", flags).config;
      EXPECT_DOUBLE_EQ(bytes_of(changed), change.bytes) << change.settings;
      EXPECT_EQ(changed.training.global_batch_size, config.training.global_batch_size) << change.settings;
    }
  }
}

TEST(Fit, TheCheapestComesFirst) {
  const Config config = eight_ranks();
  const std::vector<FittingChange> changes = nearest_that_fit(config, "bfloat16", true, 0.98 * bytes_of(config));
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].settings, "parallelism.zero = 1");
  EXPECT_THAT(changes[1].settings, testing::Not(testing::HasSubstr("zero = 1"))) << "not the same and more";
}

TEST(Fit, MoreRanksWhereNothingElseHelps) {
  const Config one = eight_ranks({});
  Config alone = one;
  alone.parallelism.dp = 1;
  alone.training.global_batch_size = 8;
  const std::vector<FittingChange> changes = nearest_that_fit(alone, "bfloat16", true, 12e9);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_THAT(
      changes[0].settings,
      testing::MatchesRegex("[0-9]+ times as many GPUs with parallelism.dp = [0-9]+, parallelism.zero = 3, .*"));
  EXPECT_LE(changes[0].bytes, 12e9);
  EXPECT_TRUE(nearest_that_fit(alone, "bfloat16", true, 1e6).empty()) << "nothing does";
  alone.parallelism.dp = -1;
  EXPECT_EQ(nearest_that_fit(alone, "bfloat16", true, 12e9)[0].settings, changes[0].settings);
}

}  // namespace
}  // namespace trireme::planner
