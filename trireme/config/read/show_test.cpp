#include "trireme/config/read/show.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Show, SaysWhereEachValueCameFromAndItsOtherNames) {
  LoadedConfig loaded =
      load("# a comment\nmodel.preset = \"tiny-llama\"\ntraining.steps = 7\n", {"--parallelism.tp", "2"});
  derive(loaded, {.ranks = 4});
  const std::string shown = show(loaded);
  EXPECT_THAT(shown, HasSubstr("steps = 7                                   # run.toml:3 | nanotron "
                               "tokens.train_steps\n"));
  EXPECT_THAT(shown, HasSubstr("tp = 2                                      # --parallelism.tp 2 | torchtitan "
                               "parallelism.tensor_parallel_degree\n"));
  EXPECT_THAT(shown, HasSubstr("hidden_size = 128                           # preset tiny-llama | nanotron "
                               "model.model_config.hidden_size\n"));
  EXPECT_THAT(shown, HasSubstr("dp = 2                                      # derived: ranks / (tp x cp x pp) | "));
  EXPECT_THAT(shown, HasSubstr("eps = 1e-08                                 # default | nanotron "));
  EXPECT_THAT(shown, HasSubstr("\n[lr_scheduler]\nwarmup_steps = 0  "));
}

TEST(Show, PrintsEveryKey) {
  LoadedConfig loaded = load("[[data]]\nsources = [{path='a'}]\n");
  const std::string shown = show(loaded);
  EXPECT_THAT(shown, HasSubstr("\n[[data]]\nstart_step = 1 "));
  EXPECT_THAT(shown, HasSubstr("\n[[data.sources]]\npath = \"a\" "));
  for (const Field& field : fields(loaded.config))
    EXPECT_THAT(shown, HasSubstr("\n" + leaf_of(field.key) + " = " + toml_text(field.value)));
}

/// A random config, as if every key had been given.
LoadedConfig random_config(Dice& dice) {
  LoadedConfig loaded;
  loaded.config.data.resize(static_cast<std::size_t>(dice.pick(0, 3)));
  for (DataStage& stage : loaded.config.data) stage.sources.resize(static_cast<std::size_t>(dice.pick(0, 3)));
  for (const Field& field : fields(loaded.config)) {
    if (!stands_alone(field)) continue;
    randomise(field, dice);
    loaded.origins[field.key] = {Origin::Kind::flag, {"", 0, 0, "--a b\nc = 5 \x1b[31m \xff"}};
  }
  return loaded;
}

TEST(Show, GivesTheSameConfigAgain) {
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    Dice dice(seed);
    LoadedConfig loaded = random_config(dice);
    const LoadedConfig again = load(show(loaded));
    EXPECT_TRUE(again.violations.empty()) << report(again.violations);
    EXPECT_EQ(values_of(again.config), values_of(loaded.config)) << "seed " << seed;
  }
}

/// For any subset of given keys: the others keep their defaults, and sources stay with their stages.
TEST(ToToml, GivesTheGivenKeysAgain) {
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    Dice dice(seed);
    LoadedConfig loaded = random_config(dice);
    Config standard;
    standard.data.resize(loaded.config.data.size());
    for (std::size_t i = 0; i < standard.data.size(); ++i)
      standard.data[i].sources.resize(loaded.config.data[i].sources.size());
    const std::vector<Field> all = fields(loaded.config), defaults = fields(standard);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool holds_table = all[i].key.ends_with(".weight") || all[i].key.ends_with(".start_step");
      if (holds_table || dice.toss()) continue;
      loaded.origins.erase(all[i].key);
      std::visit([&](auto* to) { *to = *std::get<decltype(to)>(defaults[i].value); }, all[i].value);
    }
    const LoadedConfig again = load(to_toml(loaded));
    EXPECT_TRUE(again.violations.empty()) << report(again.violations);
    EXPECT_EQ(values_of(again.config), values_of(loaded.config)) << "seed " << seed;
  }
}

TEST(ToToml, LeavesOutWhatNobodyGave) {
  LoadedConfig loaded = load(std::string(kTiny) + "training.steps = 7\n", {"--data.1.sources.0.path", "x"});
  EXPECT_THAT(loaded.violations, ::testing::SizeIs(1));  // stage 1 without stage 0
  EXPECT_EQ(to_toml(loaded), "[model]\npreset = \"tiny-llama\"\n\n[training]\nsteps = 7\n");
  loaded = load("[[data]]\nsources=[{path='a'}]\n[[data]]\nsources=[{path='b'},{path='c'}]\n");
  EXPECT_EQ(to_toml(loaded),
            "[[data]]\n\n[[data.sources]]\npath = \"a\"\n\n[[data]]\n\n[[data.sources]]\npath = \"b\"\n\n"
            "[[data.sources]]\npath = \"c\"\n");
}

TEST(ShowJson, EveryKeyWithValueAndOrigin) {
  LoadedConfig loaded =
      load_good("model.preset = \"tiny-llama\"\ntraining.steps = 7\nprofiler.steps = 3\n", {"--optimizer.lr", "0.5"});
  const std::string json = show_json(loaded);
  EXPECT_THAT(json, HasSubstr("\n  \"training.steps\": {\"value\": 7, \"from\": \"run.toml:2\"},\n"));
  EXPECT_THAT(json, HasSubstr("\"optimizer.lr\": {\"value\": 0.5, \"from\": \"--optimizer.lr 0.5\"}"));
  EXPECT_THAT(json, HasSubstr("\"profiler.steps\": {\"value\": [3], "));  // a list of one
  EXPECT_THAT(json, HasSubstr("\"model.preset\": {\"value\": \"tiny-llama\", "));
  EXPECT_THAT(json, HasSubstr("\"checkpoint.async\": {\"value\": true, \"from\": \"default\"}"));
}

TEST(DescribeModel, CountsByComponent) {
  const LoadedConfig loaded = load_good(
      "model.preset = \"llama3-8b\"\ntraining.seq_len = 8192\nmodel.dtype = "
      "\"bfloat16\"\nparallelism.dp = 8\nparallelism.replicate = 2");
  const std::string shown = describe_model(loaded);
  EXPECT_THAT(shown,
              HasSubstr("model        llama3-8b · 32 layers · hidden 4096 · 32 heads (8 key-value) · vocab 128,256\n"));
  EXPECT_THAT(shown, HasSubstr("parameters   8,030,261,248: embedding 525,336,576 · attention 1,342,177,280 · mlp "
                               "5,637,144,576 · norms 266,240 · head 525,336,576\n"));
  EXPECT_THAT(shown, HasSubstr("FLOPs        51.47 GFLOP a token, forward and backward, causal attention at 8,192 "
                               "tokens; 57.91 GFLOP with full attention"));
  EXPECT_THAT(shown, HasSubstr("states       67.3 GiB: weights 15.0 GiB · gradients 29.9 GiB · master weights 7.48 GiB "
                               "· moments 15.0 GiB (bfloat16 weights, zero 1 over 4; before tp and pp)\n"));
  EXPECT_THAT(describe_model(load_good("model.preset = \"tiny-llama\"")),
              HasSubstr("(bfloat16 weights, where the device multiplies it natively; before tp and pp)\n"));
  EXPECT_THAT(shown, HasSubstr("activations  a layer and microbatch (1 × 8,192 tokens) 1.06 GiB: "));
  EXPECT_THAT(shown, HasSubstr("logits       5.87 GiB a microbatch"));
  EXPECT_THAT(shown, Not(HasSubstr("active")));
  EXPECT_THAT(describe_model(load_good("model.preset = \"gpt3-175b\"\ntraining.seq_len = 2048")),
              HasSubstr("selective: 70.2% fewer activation bytes than with stored scores, 0.9% more FLOPs (2.7% as "
                        "published); full: 98.2% fewer, 33."));
  EXPECT_THAT(describe_model(load_good("model.preset = \"mixtral-8x7b\"")),
              HasSubstr("active       12,879,925,248 parameters a token (2 of 8 experts)\n"));
}

TEST(DescribeModel, HasNothingToSayWithoutOne) {
  LoadedConfig loaded = load("");
  derive(loaded);
  EXPECT_EQ(describe_model(loaded), "");
  loaded = load(kTiny, {"--model.hidden_size", "999999999", "--model.vocab_size", "999999999"});
  derive(loaded);
  EXPECT_EQ(describe_model(loaded), "");
}

}  // namespace
}  // namespace trireme::config
