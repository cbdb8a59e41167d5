#include "trireme/config/rules/training_rules.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

constexpr const char* kData = "[[data]]\nsources = [{path = 'synthetic'}]\n";

/// The message before training; "" if there is none.
std::string told(const std::string& toml, const Flags& flags = {}) {
  const LoadedConfig loaded = load_good(toml, flags);
  const std::vector<Violation> violations = validate_for_training(loaded);
  return violations.empty() ? "" : report(violations);
}

TEST(TrainingRules, LetPassWhatRuns) {
  EXPECT_EQ(told(std::string(kTiny) + kData), "");
  EXPECT_EQ(told(std::string(kTiny) + "checkpoint.interval = 5\nparallelism.tp = 2\nparallelism.zero = 3\n" + kData),
            "");
  EXPECT_EQ(told(std::string(kTiny) + "parallelism.pp = 2\ntraining.grad_accum = 2\n" + kData), "");
  EXPECT_EQ(told(std::string(kTiny) + "parallelism.cp = 2\n" + kData), "");
  EXPECT_EQ(told(std::string(kTiny) + "model.num_local_experts = 4\nparallelism.dp = 2\nparallelism.ep = 2\n" + kData),
            "");
}

TEST(TrainingRules, NeedAModelAndData) {
  EXPECT_EQ(told(kTiny),
            "no data to train on: no [[data]] has sources\n  --> run.toml\n  fix: [[data]] with sources = [ { path = "
            "\"...\" } ], or path = \"synthetic\"");
  LoadedConfig nothing = load("");
  derive(nothing);
  const std::vector<Violation> two = validate_for_training(nothing);
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[0].headline, "no model to train");
}

/// Those are reported by validate().
TEST(TrainingRules, LeaveOutWhatTheLoaderFound) {
  LoadedConfig wrong = load(std::string(kTiny) + "nonsense = 1\n" + kData);
  derive(wrong);
  EXPECT_TRUE(validate_for_training(wrong).empty());
}

TEST(TrainingRules, Units) {
  Config config;
  const auto layers = [&](const std::string& word) {
    config.parallelism.zero_unit = word;
    return layers_per_unit(config);
  };
  EXPECT_EQ(layers("layer"), 1);
  EXPECT_EQ(layers("4"), 4);
  EXPECT_EQ(layers("model"), 0);
  for (const std::string word : {"0", "-1", "two", "3x", ""})
    EXPECT_THAT(message_of<ConfigError>([&] { layers(word); }), testing::HasSubstr("or a number of layers"));
}

TEST(TrainingRules, HeldOutTokensThatNothingReadsAreNoted) {
  const auto said = [](const Flags& flags) {
    return training_notes(load_good(text("model.preset = 'tiny-llama'\n", kData), flags));
  };
  EXPECT_TRUE(said({}).empty());
  EXPECT_THAT(said({"--validation.fraction", "0.5"}),
              testing::ElementsAre(testing::HasSubstr("validation.interval = 0")));
  EXPECT_TRUE(said({"--validation.fraction", "0.5", "--validation.interval", "2"}).empty());
}

}  // namespace
}  // namespace trireme::config
