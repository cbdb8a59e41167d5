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

TEST(TrainingRules, WhatARunWouldLackIsRefused) {
  const Told rows[] = {
      {"optimizer.skip_z = 3.0\n",
       "optimizer.skip_z = 3.0 is not implemented yet: no update is skipped for its norm\n  --> run.toml:2\n  fix: "
       "leave it out"},
  };
  for (const Told& row : rows) EXPECT_EQ(told(kTiny + row.toml + kData), row.message) << row.toml;
}

/// Each key of the table exists, and is noticed when it is not its default.
TEST(TrainingRules, EveryKeyWithoutAReaderIsNoticed) {
  for (const NotYet& row : keys_not_done_yet()) {
    LoadedConfig loaded = load_good(std::string(kTiny) + kData);
    const std::vector<Field> all = fields(loaded.config);
    const auto field = std::ranges::find(all, row.key, &Field::key);
    ASSERT_NE(field, all.end()) << row.key;
    std::visit(
        [](auto* value) {
          using T = std::remove_pointer_t<decltype(value)>;
          if constexpr (std::is_same_v<T, bool>)
            *value = !*value;
          else if constexpr (std::is_arithmetic_v<T>)
            *value += 1;
          else if constexpr (std::is_same_v<T, std::string>)
            *value += "x";
        },
        field->value);
    const std::vector<std::string> notes = not_done_yet(loaded);
    const std::vector<Violation> violations = validate_for_training(loaded);
    const bool ignored = row.then == NotYet::Then::ignored;
    ASSERT_EQ(notes.size(), ignored ? 1U : 0U) << row.key;
    ASSERT_EQ(violations.size(), ignored ? 0U : 1U) << row.key;
    EXPECT_THAT(ignored ? notes[0] : violations[0].headline, testing::StartsWith(row.key));
  }
}

TEST(TrainingRules, WhatChangesNothingYetIsSaid) {
  const auto said = [](const Flags& flags) {
    return not_done_yet(load_good(text("model.preset = 'tiny-llama'\n", kData), flags));
  };
  EXPECT_TRUE(said({}).empty());
  EXPECT_THAT(said({"--validation.fraction", "0.5"}),
              testing::ElementsAre(testing::HasSubstr("validation.interval = 0")));
  EXPECT_TRUE(said({"--validation.fraction", "0.5", "--validation.interval", "2"}).empty());
}

}  // namespace
}  // namespace trireme::config
