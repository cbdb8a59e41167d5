#include "trireme/config/read/flags.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> flags_shown(const Settings& settings) {
  std::vector<std::string> out;
  for (const Setting& s : settings) out.push_back(s.path + "|" + str(s.value) + "|" + str(s.place));
  return out;
}

TEST(ParseFlags, AValueIsTheNextWordOrAfterAnEqualsSign) {
  EXPECT_THAT(flags_shown(parse_flags({"--training.steps", "50", "--optimizer.lr=3e-4", "--run.name", "a=b"})),
              ElementsAre("training.steps|50|--training.steps 50", "optimizer.lr|3e-4|--optimizer.lr 3e-4",
                          "run.name|a=b|--run.name a=b"));
  EXPECT_THAT(
      flags_shown(parse_flags({"--parallelism.dp", "-1", "--run.name=--x", "--run.dir="})),
      ElementsAre("parallelism.dp|-1|--parallelism.dp -1", "run.name|--x|--run.name --x", "run.dir||--run.dir"));
  EXPECT_THAT(parse_flags({}), ElementsAre());
}

TEST(ParseFlags, SwitchesTakeNoWordButTrueAndFalse) {
  EXPECT_THAT(
      flags_shown(parse_flags({"--checkpoint.async", "--comm.deterministic", "false", "--bf16", "--sequence-parallel",
                               "true", "--parallelism.enable_sequence_parallel", "--checkpoint.last_save_in_hf"})),
      ElementsAre("checkpoint.async||--checkpoint.async", "comm.deterministic|false|--comm.deterministic false",
                  "--bf16||--bf16", "--sequence-parallel|true|--sequence-parallel true",
                  "parallelism.enable_sequence_parallel||--parallelism.enable_sequence_parallel",
                  "checkpoint.last_save_in_hf||--checkpoint.last_save_in_hf"));
}

TEST(ParseFlags, OtherTrainersFlags) {
  EXPECT_THAT(flags_shown(parse_flags({"--train-iters", "5", "--data-path", "0.3", "a", "0.7", "b", "--seed=7",
                                       "--tokens.train_steps", "9", "--parallelism.tp_mode", "ALL_REDUCE"})),
              ElementsAre("--train-iters|5|--train-iters 5", "--data-path|0.3 a 0.7 b|--data-path 0.3 a 0.7 b",
                          "--seed|7|--seed 7", "tokens.train_steps|9|--tokens.train_steps 9",
                          "parallelism.tp_mode|ALL_REDUCE|--parallelism.tp_mode ALL_REDUCE"));
}

TEST(ParseFlags, AMissingValueIsToldAtOnce) {
  EXPECT_EQ(message_of<ConfigError>([] { parse_flags({"--run.name", "--training.steps", "5"}); }),
            "--run.name has no value\n  fix: write --run.name VALUE");
  EXPECT_THAT(message_of<ConfigError>([] { parse_flags({"--training.steps"}); }), HasSubstr("has no value"));
  EXPECT_THAT(message_of<ConfigError>([] { parse_flags({"--data-path"}); }), HasSubstr("--data-path has no value"));
  EXPECT_THAT(message_of<ConfigError>([] { parse_flags({"--no.such.key"}); }), HasSubstr("has no value"));
}

TEST(ParseFlags, AllWordsMustBeSettings) {
  for (const Flags& words : {Flags{"steps"}, Flags{"--steps", "5"}, Flags{"-training.steps", "5"}, Flags{""},
                             Flags{"--checkpoint.async", "yes"}})
    EXPECT_THAT(message_of<ConfigError>([&] { parse_flags(words); }),
                HasSubstr("' is not a setting\n  fix: write --section.key VALUE"));
}

TEST(TakeFlags, LeavesTheOtherWordsInOrder) {
  std::vector<std::string> rest;
  EXPECT_THAT(
      flags_shown(take_flags({"run.toml", "--training.steps", "5", "-n", "4", "--dry-run", "--lr", "1e-3", "x"}, rest)),
      ElementsAre("training.steps|5|--training.steps 5", "--lr|1e-3|--lr 1e-3"));
  EXPECT_THAT(rest, ElementsAre("run.toml", "-n", "4", "--dry-run", "x"));
}

TEST(SettingsLike, HaveTheSameLastWordOrOneLikeIt) {
  EXPECT_THAT(settings_like("--steps"), ElementsAre("--training.steps", "--profiler.steps"));
  EXPECT_THAT(settings_like("--micro-batch-size=3"), ElementsAre("--training.micro_batch_size"));
  EXPECT_THAT(settings_like("--weight-dekay"), ElementsAre("--optimizer.weight_decay"));
  EXPECT_THAT(settings_like("--xyzzy"), ElementsAre());
}

TEST(TakeFlags, APlaceIsOneLineWhateverTheValue) {
  const Settings settings = parse_flags({"--run.name=a\nb\x1b[31m" + std::string(1000, 'x')});
  EXPECT_EQ(str(settings[0].place).find_first_of("\n\x1b"), std::string::npos);
  EXPECT_LT(str(settings[0].place).size(), 100U);
}

TEST(Flags, TheLastOfARepeatedOneCounts) {
  std::vector<std::string> repeated;
  EXPECT_EQ(without_repeated({"train", "a.toml", "--training.steps", "5", "-n", "2", "--training.steps=6",
                              "--checkpoint.async", "--optimizer.lr", "1", "--checkpoint.async", "false"},
                             repeated),
            (std::vector<std::string>{"train", "a.toml", "-n", "2", "--training.steps=6", "--optimizer.lr", "1",
                                      "--checkpoint.async", "false"}));
  EXPECT_EQ(repeated, (std::vector<std::string>{"--training.steps", "--checkpoint.async"}));
}

}  // namespace
}  // namespace trireme::config
