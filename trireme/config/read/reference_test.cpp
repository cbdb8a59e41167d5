#include "trireme/config/read/reference.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Reference, EveryKeyHasAMeaning) {
  Config config;
  config.data.resize(1);
  config.data[0].sources.resize(1);
  const std::string markdown = reference_markdown();
  for (const Field& field : fields(config)) {
    EXPECT_GT(std::string(field.meaning).size(), 5U) << field.key;
    EXPECT_THAT(markdown, HasSubstr(leaf_of(field.key) + "` | `")) << field.key;
  }
}

TEST(Reference, UnitsAreOfKeysThatExist) {
  for (const char* key : {"training.seq_len", "data.seq_len", "comm.timeout_s"}) EXPECT_STRNE(unit_of(key), "") << key;
  EXPECT_STREQ(unit_of("model.preset"), "");
}

TEST(Explain, AKeyByAnyOfItsNames) {
  const std::string whole = explain("lr_scheduler.decay_end_step");
  EXPECT_THAT(whole, AllOf(StartsWith("lr_scheduler.decay_end_step = 0   (default; a number of steps)\n"),
                           HasSubstr("unit:      completed steps\n"), HasSubstr("Megatron --lr-decay-iters")));
  EXPECT_EQ(explain("decay_end_step"), whole);
  EXPECT_EQ(explain("--lr-decay-iters"), whole);
  EXPECT_EQ(explain("lr-decay-iters"), whole);
  EXPECT_THAT(explain("parallelism.zero"), HasSubstr("limits:    0 to 3\n"));
  EXPECT_THAT(explain("optimizer.name"), HasSubstr("choices:   \"adamw\", \"adam\", \"sgd\"\n"));
  EXPECT_THAT(explain("data.sources.path"), HasSubstr("data.sources.path = \"\""));
  EXPECT_THAT(explain("interval"), AllOf(HasSubstr("validation.interval"), HasSubstr("metrics.interval")));
}

TEST(Explain, ASectionOrEverything) {
  EXPECT_THAT(explain("lr_scheduler"), AllOf(HasSubstr("lr_scheduler.min_lr = 0.0"), Not(HasSubstr("optimizer.lr ="))));
  EXPECT_THAT(explain(""), AllOf(HasSubstr("run.name = "), HasSubstr("checks.non_finite = ")));
}

TEST(Explain, SomethingElseHasItsNearestKey) {
  EXPECT_EQ(
      message_of<ConfigError>([] { explain("lr_scheduler.warmup"); }),
      "unknown key lr_scheduler.warmup; did you mean \"lr_scheduler.warmup_steps\"?\n  fix: trireme config explain "
      "lists every key");
  EXPECT_THAT(message_of<ConfigError>([] { explain("qqqqqqqq"); }), StartsWith("unknown key qqqqqqqq\n"));
}

TEST(Explain, APartOfAKey) {
  const std::string found = explain("batch_size");
  EXPECT_THAT(found, HasSubstr("training.micro_batch_size = 0"));
  EXPECT_THAT(found, HasSubstr("training.global_batch_size = 0"));
}

}  // namespace
}  // namespace trireme::config
