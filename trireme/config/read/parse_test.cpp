#include "trireme/config/read/parse.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

TEST(LoadConfig, DefaultsThenPresetThenFileThenFlags) {
  LoadedConfig loaded = load("[model]\npreset = \"tiny-llama\"\nnum_hidden_layers = 8\n[training]\nsteps = 5\n",
                             {"--training.steps", "6", "--model.hidden_size=256"});
  EXPECT_THAT(loaded.violations, SizeIs(0));
  EXPECT_EQ(loaded.config.model.num_attention_heads, 4);
  EXPECT_EQ(loaded.config.model.num_hidden_layers, 8);
  EXPECT_EQ(loaded.config.model.hidden_size, 256);
  EXPECT_EQ(loaded.config.training.steps, 6);
  EXPECT_EQ(loaded.config.optimizer.lr, OptimizerConfig{}.lr);
  const auto kind = [&](const std::string& key) { return std::string(name(loaded.origins.at(key).kind)); };
  EXPECT_EQ(kind("model.num_attention_heads"), "preset");
  EXPECT_EQ(kind("model.num_hidden_layers"), "file");
  EXPECT_EQ(kind("training.steps"), "flag");
  EXPECT_EQ(str(loaded.place_of("model.num_hidden_layers")), "run.toml:3");
  EXPECT_EQ(str(loaded.place_of("training.steps")), "--training.steps 6");
  EXPECT_EQ(str(loaded.place_of("optimizer.lr")), "default");
  EXPECT_FALSE(loaded.is_given("optimizer.lr"));
}

TEST(LoadConfig, FromAFileOrFromFlagsAlone) {
  LoadedConfig loaded = load_config(testdata_path("e3.toml"), parse_flags({"--training.steps", "5"}));
  EXPECT_EQ(loaded.config.training.steps, 5);
  EXPECT_EQ(loaded.file, testdata_path("e3.toml"));
  EXPECT_EQ(load_config("", parse_flags({"--model.preset", "gpt2"})).config.model.hidden_size, 768);
  EXPECT_THAT(message_of<ConfigError>([] { load_config("no/such.toml"); }),
              StartsWith("cannot open no/such.toml: No such file"));
}

TEST(LoadConfig, DataIsOneTableOrAList) {
  const std::string sources = "sources = [ { path = \"a\", weight = 0.5 }, { path = \"b\" } ]\n";
  for (const std::string& toml :
       {"[data]\n" + sources, "[[data]]\n" + sources, "data = { " + sources.substr(0, sources.size() - 1) + " }"}) {
    const LoadedConfig loaded = load(toml);
    EXPECT_THAT(loaded.violations, SizeIs(0)) << toml;
    ASSERT_THAT(loaded.config.data, SizeIs(1)) << toml;
    ASSERT_THAT(loaded.config.data[0].sources, SizeIs(2)) << toml;
    EXPECT_EQ(loaded.config.data[0].sources[0].weight, 0.5);
    EXPECT_EQ(loaded.config.data[0].sources[1].path, "b");
    EXPECT_EQ(loaded.config.data[0].sources[1].weight, 1);
  }
  const LoadedConfig flags =
      load("[[data]]\nsources = [{path='a'}]\n",
           {"--data.0.sources.0.path", "b", "--data.1.start_step=5", "--data.1.sources.0.path=synthetic"});
  EXPECT_EQ(flags.config.data[0].sources[0].path, "b");
  EXPECT_EQ(flags.config.data[1].start_step, 5);
  EXPECT_EQ(load("", {"--data.sources.0.path=x"}).config.data[0].sources[0].path, "x");
  EXPECT_THAT(load("data = []\n").config.data, SizeIs(0));
}

/// One error at a time, with its full message.
TEST(LoadConfig, TellsWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"training.steps = \"x\"", "training.steps = \"x\" is a string, not a whole number\n  --> run.toml:2"},
      {"training.steps = 0", "training.steps = 0 is too small: at least 1\n  --> run.toml:2"},
      {"optimizer.lr = nan", "optimizer.lr = nan is not a finite number\n  --> run.toml:2"},
      {"optimizer.lr = -inf", "optimizer.lr = -inf is not a finite number\n  --> run.toml:2"},
      {"parallelism.tp = 1.5", "parallelism.tp = 1.5 is a fraction, not a whole number\n  --> run.toml:2"},
      {"checkpoint.async = 1", "checkpoint.async = 1 is a whole number, not true or false\n  --> run.toml:2"},
      {"run.name = \"\"", "run.name = \"\" is empty\n  --> run.toml:2"},
      {"run.name = \"a\\u0000b\"", "run.name = \"a\\u0000b\" holds a NUL character\n  --> run.toml:2"},
      {"lr_scheduler.decay = \"cos\"",
       "lr_scheduler.decay = \"cos\" is not one of: linear, cosine, 1-sqrt, exponential, inverse-sqrt, constant\n  --> "
       "run.toml:2"},
      {"parallelism.dp = -2", "parallelism.dp = -2 is too small: at least -1\n  --> run.toml:2"},
      {"optimizer.no_decay = \"norm\"",
       "optimizer.no_decay = \"norm\" is a string, not a list of strings\n  --> run.toml:2"},
      {"training = 5",
       "training = 5, but [training] is a table\n  --> run.toml:2\n  fix: write its keys under [training]"},
      {"[[training]]\nsteps = 5",
       "[training] is a list of tables here\n  --> run.toml:3\n  fix: write [training] once, in single brackets"},
      {"data = 5", "data = 5, but [data] is a table\n  --> run.toml:2\n  fix: write its keys under [data]"},
      {"data.sources = [\"a.ds\"]",
       "data.sources = [\"a.ds\"] is not a list of tables\n  --> run.toml:2\n"
       "  fix: sources = [ { path = \"tokens.ds\", weight = 1.0 } ]"},
      {"[[data]]\nsources = [{}]",
       "source 0 of data stage 0 has no path\n  --> run.toml\n  fix: path = \"...\", or path = \"synthetic\""},
      {"[[data]]\nsources = [{weight = 2}]",
       "source 0 of data stage 0 has no path\n  --> run.toml:3\n  fix: path = \"...\", or path = \"synthetic\""},
      {"tokens.train_steps = 5\ntraining.steps = 6",
       "training.steps is given twice\n  --> run.toml:3  first at run.toml:2\n  fix: keep this one or run.toml:2"},
      {"lr_scheduler.decay_steps = 5\nlr_scheduler.decay_ratio = 0.5",
       "lr_scheduler.decay_steps is given twice\n  --> run.toml:3  first at run.toml:2\n  fix: keep this one or "
       "run.toml:2"},
      {"parallelism.dp = 2\nparallelism.data_parallel_shard_degree = 4",
       "parallelism.dp is given twice\n  --> run.toml:3  first at run.toml:2\n  fix: keep this one or run.toml:2"},
      {"parallelism.pipeline_parallel_schedule = \"Foo\"",
       "parallelism.pipeline_parallel_schedule = \"Foo\" has no counterpart here (known: 1f1b, dualpipev, gpipe, "
       "interleaved1f1b, zbvzerobubble)\n  --> run.toml:2"},
      {"model.hf = \"no/such/folder\"",
       "cannot open no/such/folder: No such file or directory\n  --> run.toml:2\n  fix: a folder with the config.json "
       "of a "
       "model, or that file"},
      {"model.flavor = \"8B\"\nmodel.name = \"llama3\"",
       "model.preset and model.flavor both name a model\n  --> run.toml:2\n  fix: keep one of the two"},
  };
  for (const auto& [toml, message] : cases) EXPECT_EQ(error_of(kTiny + toml), message) << toml;
  const Violation preset = load("model.preset = \"tiny-lama\"").violations.at(0);
  EXPECT_EQ(preset.headline, "unknown preset \"tiny-lama\"");
  EXPECT_EQ(preset.detail, "did you mean \"tiny-llama\"?");
  EXPECT_THAT(preset.fix, StartsWith("one of tiny-llama gpt2 gpt2-medium"));
}

TEST(LoadConfig, UnknownKeysHaveTheirNearestName) {
  const auto told = [](const std::string& toml, const Flags& flags = {}) { return error_of(kTiny + toml, flags); };
  EXPECT_EQ(told("[training]\n  stesp = 5  # note"),
            "unknown key\n"
            "  --> run.toml:3   stesp = 5  # note\n"
            "                   ^^^^^ in [training]; did you mean \"steps\"?   (nanotron: train_steps, Megatron: "
            "--train-iters both work)");
  EXPECT_EQ(told("optimizer = { lr = 1e-3, wieght_decay = 0.1 }"),
            "unknown key\n"
            "  --> run.toml:2   optimizer = { lr = 1e-3, wieght_decay = 0.1 }\n"
            "                                            ^^^^^^^^^^^^ in [optimizer]; did you mean \"weight_decay\"?   "
            "(Megatron: --weight-decay works too)");
  EXPECT_THAT(told("[training]\nlr = 1e-3"), HasSubstr("in [training]; did you mean \"optimizer.lr\"?"));
  EXPECT_THAT(told("[paralelism]\ntp = 2"), HasSubstr("^^ did you mean \"parallelism.tp\"?"));
  EXPECT_THAT(told("[paralelism]"), HasSubstr("did you mean \"parallelism.dp\"?"));
  EXPECT_THAT(told("xyzzy = 2"), HasSubstr("^^^^^ no similar key"));
  EXPECT_THAT(told("model.enabled = true"), HasSubstr("no similar key"));
  EXPECT_THAT(told("[data]\npath = 'x'\nsources = [{path = 'y'}]"),
              HasSubstr("in [data]; did you mean \"data.sources.path\"?"));
  EXPECT_THAT(told("[[data]]\nsource = 'x'"), HasSubstr("in [data]; did you mean \"sources\"?"));
  EXPECT_EQ(told("", {"--lr_scheduler.warmup", "200"}),
            "unknown key lr_scheduler.warmup\n  --> --lr_scheduler.warmup 200  in [lr_scheduler]; did you mean "
            "\"warmup_steps\"?   (nanotron: lr_warmup_steps, Megatron: --lr-warmup-iters both work)");
  // A word beyond the displayed width, multi-byte characters, control characters.
  EXPECT_THAT(told("optimizer = { no_decay = [\"" + std::string(200, 'x') + "\"], stesp = 5 }"),
              AllOf(HasSubstr("--> run.toml:2   stesp\n"), HasSubstr("\n                   ^^^^^ in")));
  EXPECT_THAT(told("[training]\n\"größe\" = 5"), HasSubstr("\"größe\" = 5\n                   ^^^^^ in"));
  EXPECT_THAT(told("\"a\\u001b[31m\\n\" = 5"), ::testing::Not(HasSubstr("\x1b")));
}

/// Nothing may be ignored silently.
TEST(LoadConfig, IgnoresNothing) {
  for (const char* toml :
       {"database = []", "[data_foo]", "x.sources = []", "[data.bogus]", "data.bogus = []", "data = [[]]",
        "[[data]]\n[[data.bogus]]", "[model.nonsense]", "[training.steps]", "training.steps = {}",
        "model.name = \"llama3\"", "model.flavor = \"8B\"", "\"\" = 1", "model.stage = 1", "parallelism.stage = 3",
        "model.type = \"x\"", "model.rope_scaling = 5", "model.bf16 = true", "optimizer = []"})
    EXPECT_NE(load(toml).violations.size(), 0U) << toml;
  for (const char* toml :
       {"[training]", "[model.rope_scaling]", "data = []", "[data]", "[[data]]", "data.sources = []"})
    EXPECT_EQ(load(toml).violations.size(), 0U) << toml;
}

TEST(LoadConfig, TorchtitansModelIsAPreset) {
  LoadedConfig loaded = load("[model]\nname = \"llama3\"\nflavor = \"8B\"\nvocab_size = 512\n");
  EXPECT_THAT(loaded.violations, SizeIs(0));
  EXPECT_EQ(loaded.config.model.preset, "llama3.1-8b");
  EXPECT_EQ(loaded.config.model.hidden_size, 4096);
  EXPECT_EQ(loaded.config.model.vocab_size, 512);
  EXPECT_EQ(str(loaded.place_of("model.preset")), "run.toml:3");
  EXPECT_EQ(error_of("[model]\nname = \"llama3\"\nflavor = \"9B\"\nhidden_size = 8").substr(0, 38),
            "5 config errors (nothing was started)\n");
}

TEST(LoadConfig, HfConfigGivesTheSizes) {
  const std::string hf = "model.hf = \"" + testdata_path("hf/qwen3-0.6b") + "\"\n";
  LoadedConfig loaded = load_good(hf + "model.num_hidden_layers = 2\n");
  EXPECT_EQ(loaded.config.model.hidden_size, 1024);
  EXPECT_EQ(loaded.config.model.num_hidden_layers, 2);
  EXPECT_EQ(name(loaded.origins.at("model.hidden_size").kind), std::string("hf"));
  EXPECT_EQ(str(loaded.place_of("model.hidden_size")), testdata_path("hf/qwen3-0.6b/config.json"));
  EXPECT_EQ(error_of("model.hf = \"" + std::string(5000, 'x') + "\"\nmodel.preset = \"gpt2\"").substr(0, 15),
            "cannot open xxx");
}

TEST(LoadConfig, SettingsThatReadOthersWaitForFlags) {
  const auto decay_steps = [](const std::string& toml, const Flags& flags) {
    return load(toml, flags).config.lr_scheduler.decay_steps;
  };
  const std::string ratio = "lr_scheduler.decay_ratio = 0.5\ntraining.steps = 100\n";
  EXPECT_EQ(decay_steps(ratio, {}), 50);
  EXPECT_EQ(decay_steps(ratio, {"--training.steps", "200"}), 100);
  EXPECT_EQ(decay_steps(ratio, {"--lr_scheduler.decay_steps", "7"}), 7);
  EXPECT_EQ(decay_steps("training.steps = 100", {"--lr_scheduler.decay_ratio", "0.1"}), 10);
  const auto betas = [](const std::string& toml, const Flags& flags) {
    return load(toml, flags).config.optimizer.betas;
  };
  using Betas = std::vector<double>;
  EXPECT_EQ(betas("optimizer.beta1 = 0.8\noptimizer.beta2 = 0.7", {}), (Betas{0.8, 0.7}));
  EXPECT_EQ(betas("optimizer.beta1 = 0.8", {"--adam-beta2", "0.99"}), (Betas{0.8, 0.99}));
  EXPECT_EQ(betas("optimizer.beta1 = 0.8", {"--optimizer.betas", "0.5,0.6"}), (Betas{0.5, 0.6}));
  EXPECT_EQ(betas("optimizer.betas = [0.5, 0.6]", {"--optimizer.beta1", "0.4"}), (Betas{0.4, 0.6}));
  EXPECT_EQ(load("lr_scheduler.min_lr_factor = 0.1", {"--optimizer.lr", "1e-2"}).config.lr_scheduler.min_lr, 1e-3);
}

TEST(LoadConfig, ManyStagesAndManyErrorsEndInTime) {
  const auto repeat = [](const std::string& word, std::size_t times) { return repeated(word, times * word.size()); };
  std::string keys;
  for (int i = 0; i < 1500; ++i) keys += text("training.key", i, " = 1\n");
  for (const std::string& toml :
       {repeat("[[data]]\nseq_len = 8\n", 1200), keys, "data.sources = [" + repeat("{path='a'},", 1200) + "]"}) {
    std::size_t violations = 0;
    EXPECT_LT(seconds_of([&] { violations = load(toml).violations.size(); }), kDeadlineSeconds);
    EXPECT_EQ(violations, 101U);
  }
  const LoadedConfig many = load(repeat("[[data]]\nsources = [{path='a'}, {path='b'}, {path='c'}]\n", 250));
  EXPECT_THAT(many.violations, SizeIs(0));
  EXPECT_THAT(many.config.data, SizeIs(250));
}

TEST(Load, AFlagGivenTwiceIsAnError) {
  EXPECT_EQ(
      error_of(kTiny, {"--training.steps", "5", "--training.steps", "6"}),
      "training.steps is given twice\n  --> --training.steps 6  first at --training.steps 5\n  fix: keep this one or "
      "--training.steps 5");
  EXPECT_THAT(error_of(kTiny, {"--training.steps", "5", "--train-iters", "6"}),
              HasSubstr("training.steps is given twice"));
  EXPECT_EQ(error_of(std::string(kTiny) + "training.steps = 4", {"--training.steps", "5"}), "no error");
  // Two names that each set a half.
  EXPECT_EQ(error_of(kTiny, {"--adam-beta1", "0.8", "--adam-beta2", "0.9"}), "no error");
  EXPECT_EQ(error_of(kTiny, {"--profile", "--profile-step-start", "2", "--profile-step-end", "4"}), "no error");
}

}  // namespace
}  // namespace trireme::config
