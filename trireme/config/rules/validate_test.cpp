#include "trireme/config/rules/validate.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

/// The error for a file of testdata/ that the user calls run.toml; checks the exit code.
std::string golden(const std::string& name, const Started& started = {}) {
  LoadedConfig loaded = load_config_text("run.toml", testdata(name));
  try {
    check_config(loaded, started);
  } catch (const ConfigError& e) {
    EXPECT_EQ(static_cast<int>(e.exit_code()), 64);
    return e.what();
  }
  return "no error";
}

// The full text of the main error messages.

TEST(Golden, E1WorldSize) {
  EXPECT_EQ(golden("e1.toml", {.ranks = 8, .how = "torchrun, WORLD_SIZE=8"}),
            "the layout needs 16 ranks, 8 were started\n"
            "  --> run.toml:41  [parallelism]  dp=4 tp=2 pp=2 cp=1          4 × 2 × 2 × 1 = 16\n"
            "  launch: torchrun, WORLD_SIZE=8\n"
            "  fix: start 16 ranks, or set dp = 2 (or dp = -1: all remaining ranks)");
  EXPECT_EQ(golden("e1.toml", {.ranks = 16}), "no error");
  EXPECT_EQ(golden("e1.toml"), "no error");
}

TEST(Golden, E2AllAtOnce) {
  EXPECT_EQ(
      golden("e2.toml"),
      "3 config errors (nothing was started)\n"
      "  1. run.toml:18  num_attention_heads = 12 is not divisible by parallelism.tp = 8             heads per rank "
      "must be whole: tp ∈ {1, 2, 3, 4, 6, 12}\n"
      "  2. run.toml:19  num_key_value_heads = 3 and parallelism.tp = 8: neither divides the other   tp ∈ {1, 3, "
      "6, 12}\n"
      "  3. run.toml:52  global_batch_size = 100 ≠ micro_batch_size 4 × grad_accum × dp 8            nearest: 96 "
      "(grad_accum 3) or 128 (grad_accum 4)");
}

TEST(Golden, E3UnknownKey) {
  EXPECT_EQ(
      golden("e3.toml"),
      "unknown key\n"
      "  --> run.toml:33   warmup = 200\n"
      "                    ^^^^^^ in [lr_scheduler]; did you mean \"warmup_steps\"?   (nanotron: lr_warmup_steps, "
      "Megatron: --lr-warmup-iters both work)");
  EXPECT_THAT(message_of<ConfigError>([] {
                LoadedConfig loaded = load_config(testdata_path("e3.toml"));
                check_config(loaded);
              }),
              HasSubstr("  --> " + testdata_path("e3.toml") + ":33   warmup = 200\n"));
}

TEST(Golden, FiveRulesBrokenAreFiveErrors) {
  EXPECT_EQ(golden("five_errors.toml"),
            "5 config errors (nothing was started)\n"
            "  1. run.toml:4   unknown key model.hidden_szie                             in [model]; did you mean "
            "\"hidden_size\"?   (nanotron: hidden_size, Megatron: --hidden-size both work)\n"
            "  2. run.toml:7   training.steps = \"many\" is a string, not a whole number\n"
            "  3. run.toml:11  optimizer.lr = -1.0 is too small: it must be above 0\n"
            "  4. run.toml:8   seq_len = 127 is not divisible by parallelism.tp = 2      change seq_len, or set "
            "sequence_parallel = false\n"
            "  5. run.toml:14  min_lr = 1 is above optimizer.lr = 0.0003                 optimizer.lr is the highest "
            "rate: the warm-up ends there and the decay begins there");
}

TEST(Golden, ASyntaxErrorReportsItself) {
  EXPECT_THAT(error_of("[training]\nsteps = \nwrong = 1\n"),
              StartsWith("this is not TOML: Error while parsing key-value pair"));
  EXPECT_THAT(error_of("[training]\nsteps = \nwrong = 1\n"), HasSubstr("\n  --> run.toml:2, column "));
}

TEST(Validate, OptimizerAndData) {
  const Told rows[] = {
      {"optimizer.betas = [0.9]",
       "optimizer.betas = [0.9]\n  --> run.toml:2  two numbers, each at least 0 and below 1"},
      {"optimizer.betas = [0.9, 1.0]",
       "optimizer.betas = [0.9, 1.0]\n  --> run.toml:2  two numbers, each at least 0 and below 1"},
      {"optimizer.no_decay = [\"re:(x\"]",
       "optimizer.no_decay: \"(x\" is not a regular expression: Mismatched '(' and ')' in "
       "regular expression\n  --> run.toml:2\n  "
       "fix: a "
       "part of a name, a glob such as *.bias, or re:REGEX"},
      {"lr_scheduler.decay_start_step = 9\nlr_scheduler.decay_end_step = 8",
       "lr_scheduler: the decay ends after step 8, and begins after step 9\n  --> run.toml:3\n  fix: decay_start_step "
       "at "
       "most decay_end_step"},
      {"lr_scheduler.decay_start_step = 9\nlr_scheduler.decay_end_step = 20\nlr_scheduler.decay_steps = 10",
       "lr_scheduler: decay_start_step 9 + decay_steps 10 is not decay_end_step 20\n  --> run.toml:4  two of them "
       "determine "
       "the "
       "third\n  fix: leave one of them out"},
      {"lr_scheduler.min_lr = 0.5",
       "min_lr = 0.5 is above optimizer.lr = 0.0003\n  --> run.toml:2  optimizer.lr is the highest rate: the warm-up "
       "ends there and the decay begins there"},
      {"optimizer.name = 'sgd'\noptimizer.nesterov = true\noptimizer.momentum = 0.0",
       "optimizer.nesterov = true with optimizer.momentum = 0\n  --> run.toml:3  Nesterov's step looks ahead along the "
       "momentum\n  fix: set a momentum, for instance 0.9"},
      {"optimizer.eps = 0", "optimizer.eps = 0 is too small: it must be above 0\n  --> run.toml:2"},
      {"model.resid_pdrop = 1", "model.resid_pdrop = 1 is too large: it must be below 1\n  --> run.toml:2"},
      {"model.embd_pdrop = 1.0", "model.embd_pdrop = 1.0 is too large: it must be below 1\n  --> run.toml:2"},
      {"model.attention_dropout = 1.0",
       "model.attention_dropout = 1.0 is too large: it must be below 1\n  --> run.toml:2"},
      {"model.resid_pdrop = 0.999\noptimizer.nesterov = true", "no error"},
      {"[[data]]\nstart_step = 2\nsources = [{path = 'a'}]",
       "the first data stage starts at step 2\n  --> run.toml:3  steps are counted from 1\n  fix: set start_step = 1"},
      {"[[data]]\nsources = [{path = 'a'}]\n[[data]]\nsources = [{path = 'a'}]",
       "data stage 1 starts at step 1, stage 0 at step 1\n  --> default  stages follow one another\n  fix: raise "
       "start_step"},
      {"[[data]]\nseq_len = 128",
       "data stage 0 has no sources\n  --> run.toml:3\n  fix: sources = [ { path = \"...\" } ], or path = "
       "\"synthetic\""},
      {"[[data]]\nstart_step = 1\nsources = [{path = 'a'}, {path = '', weight = 3}]",
       "source 1 of data stage 0 has no path\n  --> run.toml:4\n  fix: path = \"...\", or path = \"synthetic\""},
  };
  for (const Told& row : rows) EXPECT_EQ(error_of(kTiny + row.toml), row.message) << row.toml;
}

TEST(Validate, TracesStayInTheRunsFolder) {
  for (const std::string dir : {"../..", "..", "trace/../..", "/tmp/trace", ".", "a/.."})
    EXPECT_EQ(error_of(text(kTiny, "profiler.dir = '", dir, "'")),
              text("profiler.dir = \"", dir,
                   "\" is not inside the run's folder\n  --> run.toml:2  a relative path "
                   "without ..\n  fix: a name such as \"trace\"; run.dir says where runs are"));
  for (const std::string dir : {"trace", "a/b", "./trace", "..trace"})
    EXPECT_EQ(error_of(text(kTiny, "profiler.dir = '", dir, "'")), "no error") << dir;
}

TEST(Validate, ValidationNeedsTokens) {
  const Told rows[] = {
      {"validation.interval = 5",
       "validation.interval = 5, but there is nothing to validate on\n  --> run.toml:2\n  fix: set "
       "validation.fraction, "
       "for instance 0.01, or validation.sources"},
      {"validation.interval = 5\nvalidation.fraction = 0.1\nvalidation.sources = ['a']",
       "validation.fraction = 0.1 with validation.sources\n  --> run.toml:3  held-out tokens, or files of their own\n"
       "  fix: leave one of the two out"},
      {"validation.fraction = 1.0",
       "validation.fraction = 1\n  --> run.toml:2  at least 0 and below 1: something must be left to train on"},
      {"validation.fraction = 0.1", "no error"},
      {"validation.interval = 5\nvalidation.fraction = 0.999", "no error"},
      {"validation.interval = 5\nvalidation.samples = 8\nvalidation.sources = ['a', 'b.bin']", "no error"},
      {"validation.sources = ['']", "validation.sources = [\"\"] is empty\n  --> run.toml:2"},
  };
  for (const Told& row : rows) EXPECT_EQ(error_of(kTiny + row.toml), row.message) << row.toml;
}

/// max_norm = 0 disables clipping, as in nanotron and DeepSpeed.
TEST(Validate, ClippingMayBeOff) {
  EXPECT_EQ(load_good(std::string(kTiny) + "training.max_norm = 0").config.training.max_norm, 0);
  EXPECT_NE(error_of(std::string(kTiny) + "training.max_norm = -1"), "no error");
}

TEST(Validate, NamesOfOptimizersAndStagesOfZero) {
  for (const char* name : {"adamw", "adam", "sgd"})
    EXPECT_EQ(error_of(kTiny + text("optimizer.name = '", name, "'")), "no error");
  EXPECT_NE(error_of(std::string(kTiny) + "optimizer.name = 'lion'"), "no error");
  for (int zero = -1; zero <= 4; ++zero)
    EXPECT_EQ(error_of(kTiny + text("parallelism.zero = ", zero)) == "no error", 0 <= zero && zero <= 3) << zero;
}

std::vector<std::string> warnings_of(const std::string& toml, const Started& started = {}) {
  LoadedConfig loaded = load(toml);
  return check_config(loaded, started);
}

TEST(Validate, WarnsWithTheReason) {
  const Told rows[] = {
      {"parallelism.dp = 1024", "dp = 1024 is more than 512: latency grows with the length of the ring"},
      {"parallelism.tp = 4\nmodel.num_key_value_heads = 2",
       "tp = 4 is more than num_key_value_heads = 2: each key-value head is kept by 2 ranks"},
      {"model.num_local_experts = 4\nmodel.num_experts_per_tok = 1",
       "norm_topk_prob = true with num_experts_per_tok = 1: the one weight of a token is always 1, and the router "
       "learns "
       "nothing (model.norm_topk_prob = false)"},
      {"model.num_local_experts = 4\nmodel.router_aux_loss_coef = 0.1\nmodel.router_aux_loss_type = 'hf'\n"
       "training.micro_batch_size = 2\nparallelism.dp = 2",
       "router_aux_loss_type = \"hf\": its balancing loss is over the 4 samples of all ranks in a microbatch, and "
       "another "
       "parallelism.dp would train with another loss; model.router_aux_loss_samples = 4 makes that an error"},
      {"training.steps = 10\nprofiler.steps = 20", "profiler.steps has step 20, after the last step 10"},
      {"parallelism.pp = 4", "1 microbatch for 4 stages: the bubble of 1f1b is 75% of the time (raise grad_accum)"},
      {"parallelism.pp = 2\ntraining.grad_accum = 1\nparallelism.pp_schedule = 'zbv'",
       "1 microbatch for 2 stages: the bubble of zbv is "},
      {"training.seq_len = 4096",
       "seq_len = 4096 is longer than max_position_embeddings = 2048: the model was not trained for such positions"},
      {"lr_scheduler.warmup_steps = 2000",
       "warmup_steps = 2000 is more than steps = 1000: the learning rate never reaches its peak"},
      {"lr_scheduler.warmup_steps = 200\nlr_scheduler.decay_steps = 900",
       "the learning rate decays until step 1100, after the last step 1000: the decay does not reach its end"},
      {"lr_scheduler.decay_end_step = 500",
       "the learning rate is 0 from step 501 on, of 1000 (decay_end_step = 500, min_lr = 0): those steps train "
       "nothing"},
      {"optimizer.no_decay = [\"bias\", \".*token_embedding.*\"]",
       "optimizer.no_decay: \".*token_embedding.*\" matches no parameter; the nearest are embedding.weight, "},
      {"loss_scale.hysteresis = 4", "[loss_scale] is for float16; this run does not use it"},
      {"[[data]]\nsources = [{path = 'a'}]\n[[data]]\nstart_step = 2000\nsources = [{path = 'b'}]",
       "data stage 1 starts at step 2000, after the last step 1000"},
  };
  for (const Told& row : rows)
    EXPECT_THAT(warnings_of(kTiny + row.toml), ElementsAre(StartsWith(row.message))) << row.toml;
  EXPECT_THAT(warnings_of(std::string(kTiny) + "parallelism.tp = 4", {.ranks_of_a_host = 2}),
              ElementsAre("tp = 4 is wider than one host (2 ranks): its all-reduces cross slower links between hosts"));
  EXPECT_THAT(warnings_of(std::string(kTiny) + "parallelism.pp = 4\ntraining.grad_accum = 4"), SizeIs(0));
  EXPECT_THAT(warnings_of(std::string(kTiny) + "loss_scale.initial = 4.0\nmodel.dtype = 'float16'"), SizeIs(0));
  EXPECT_THAT(warnings_of(kTiny), SizeIs(0));
}

/// All keys at their maximum: no overflow, no hang, no crash.
TEST(Validate, HugeNumbersEndInTime) {
  std::string all;
  Config config;
  for (const Field& field : fields(config)) {
    const bool is_number =
        std::holds_alternative<std::int64_t*>(field.value) || std::holds_alternative<double*>(field.value);
    if (is_number)
      all += text(field.key, " = ", std::isfinite(field.max) ? text(field.max) : "9223372036854775807", "\n");
  }
  EXPECT_LT(seconds_of([&] { EXPECT_NE(error_of(all), "no error"); }), kDeadlineSeconds);
  const std::string layers = "model.num_hidden_layers = 1000000\nparallelism.pp = 1000000\n";
  for (const std::string& toml : {layers + "training.grad_accum = 999999", layers + "training.grad_accum = 1",
                                  std::string("parallelism.dp = 1000000\nparallelism.cp = 16"),
                                  std::string("parallelism.dp = 1000000\ntraining.grad_accum = 1000000")})
    EXPECT_LT(seconds_of([&] { error_of(kTiny + toml); }), kDeadlineSeconds) << toml;
}

TEST(Validate, ReportsWhatTheLoaderFoundFirst) {
  LoadedConfig loaded = load(std::string(kTiny) + "parallelism.tp = 3\nnonsense = 1\n");
  derive(loaded);
  std::vector<std::string> warnings;
  const std::vector<Violation> violations = validate(loaded, {}, warnings);
  ASSERT_THAT(violations, SizeIs(::testing::Ge(2)));
  EXPECT_EQ(violations[0].in_list, "unknown key nonsense");
  EXPECT_THAT(violations[1].headline, HasSubstr("num_attention_heads"));
}

}  // namespace
}  // namespace trireme::config
