#include "trireme/config/schema/fields.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "trireme/config/settings/convert.hpp"
#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

/// A config with two data stages, so that it has all keys.
Config whole_config() {
  Config config;
  config.data.resize(2);
  config.data[0].sources.resize(2);
  config.data[1].sources.resize(1);
  return config;
}

TEST(Fields, HaveTheDefaultsOfTheSchema) {
  Config config;
  const std::map<std::string, std::string> values = values_of(config);
  const std::map<std::string, std::string> expected = {
      {"run.dir", "\"runs\""},
      {"run.seed", "42"},
      {"model.dtype", "\"auto\""},
      {"model.init", "\"random\""},
      {"training.max_norm", "1.0"},
      {"validation.interval", "0"},
      {"validation.samples", "0"},
      {"validation.fraction", "0.0"},
      {"validation.sources", "[]"},
      {"optimizer.name", "\"adamw\""},
      {"optimizer.lr", "3e-04"},
      {"optimizer.betas", "[0.9, 0.95]"},
      {"optimizer.eps", "1e-08"},
      {"optimizer.weight_decay", "0.1"},
      {"optimizer.no_decay", "[\"norm\", \"bias\"]"},
      {"optimizer.skip_z", "0.0"},
      {"lr_scheduler.decay", "\"cosine\""},
      {"parallelism.dp", "-1"},
      {"parallelism.zero", "1"},
      {"parallelism.tp", "1"},
      {"parallelism.sequence_parallel", "true"},
      {"parallelism.pp", "1"},
      {"parallelism.pp_schedule", "\"1f1b\""},
      {"parallelism.virtual_stages", "1"},
      {"parallelism.stages", "[]"},
      {"parallelism.cp", "1"},
      {"parallelism.cp_method", "\"ring\""},
      {"parallelism.ep", "1"},
      {"parallelism.expert_tp", "0"},
      {"parallelism.order", "\"tp-cp-dp-pp\""},
      {"parallelism.replicate", "1"},
      {"parallelism.reshard_after_forward", "true"},
      {"parallelism.overlap_comm", "true"},
      {"parallelism.reduce_scatter", "true"},
      {"parallelism.contiguous_gradients", "true"},
      {"parallelism.bucket_mb", "25.0"},
      {"parallelism.max_live_parameters", "1000000000"},
      {"parallelism.max_reuse_distance", "1000000000"},
      {"parallelism.persistence_threshold", "100000"},
      {"parallelism.zero_unit", "\"layer\""},
      {"precision.param", "\"auto\""},
      {"precision.reduce", "\"float32\""},
      {"precision.accumulate", "\"float32\""},
      {"precision.master", "\"float32\""},
      {"precision.states", "\"float32\""},
      {"precision.fp8_scaling", "\"tensor\""},
      {"precision.fp8_amax", "\"step\""},
      {"loss_scale.initial", "65536.0"},
      {"loss_scale.growth_interval", "1000"},
      {"loss_scale.hysteresis", "2"},
      {"activation_checkpoint.mode", "\"none\""},
      {"checkpoint.interval", "200"},
      {"checkpoint.keep", "2"},
      {"checkpoint.resume", "\"auto\""},
      {"checkpoint.async", "true"},
      {"checkpoint.buffer_mb", "0.0"},
      {"checkpoint.accept_changes", "[]"},
      {"checkpoint.export_hf", "true"},
      {"checkpoint.format", "\"trireme\""},
      {"metrics.interval", "10"},
      {"metrics.console", "\"auto\""},
      {"metrics.tensorboard", "true"},
      {"metrics.peak_tflops", "0.0"},
      {"profiler.steps", "[]"},
      {"profiler.memory_snapshot", "\"on_oom\""},
      {"profiler.wait", "1"},
      {"profiler.warmup", "1"},
      {"profiler.active", "3"},
      {"profiler.with_stack", "false"},
      {"profiler.dir", "\"trace\""},
      {"comm.backend", "\"auto\""},
      {"comm.init_timeout_s", "300.0"},
      {"comm.timeout_s", "100.0"},
      {"comm.check", "\"fast\""},
      {"comm.deterministic", "false"},
      {"comm.share_gpu", "false"},
      {"cuda.graphs", "\"auto\""},
      {"cuda.fused_matmul", "true"},
      {"cuda.tune_matmul", "true"},
      {"cuda.deterministic", "false"},
      {"checks.replicas_every", "0"},
      {"checks.non_finite", "\"stop\""},
  };
  EXPECT_THAT(values, ::testing::IsSupersetOf(expected));
}

TEST(Fields, TakeTheirOwnDefaults) {
  Config config = whole_config();
  for (const Field& field : fields(config)) {
    const std::string before = toml_text(field.value);
    const Settings settings = parse_flags({"--" + field.key + "=" + before});
    const bool is_text = std::holds_alternative<std::string*>(field.value);
    const Value value = is_text ? Value{*std::get<std::string*>(field.value)} : settings[0].value;
    EXPECT_EQ(assign_value(field, value), "") << field.key;
    EXPECT_EQ(toml_text(field.value), before);
  }
}

/// TOML writes a table's keys before its subtables, and each table once.
TEST(Fields, OfATableStandTogether) {
  Config config = whole_config();
  std::set<std::string> closed, keys;
  std::string open;
  for (const Field& field : fields(config)) {
    EXPECT_TRUE(keys.insert(field.key).second) << field.key;
    const std::string table = field.key.substr(0, field.key.rfind('.'));
    if (table == open) continue;
    EXPECT_TRUE(closed.insert(table).second) << "[" << table << "] is opened twice";
    open = table;
  }
}

TEST(Fields, SectionAndLeaf) {
  EXPECT_EQ(section_of("parallelism.tp"), "parallelism");
  EXPECT_EQ(section_of("data.0.seq_len"), "data");
  EXPECT_EQ(section_of("steps"), "steps");
  EXPECT_EQ(leaf_of("model.rope_scaling.factor"), "factor");
  EXPECT_EQ(leaf_of("steps"), "steps");
}

TEST(TomlText, IsReadBackAsTheSameKind) {
  double whole = 3, small = 1e-8, large = 1e300, third = 1.0 / 3;
  EXPECT_EQ(toml_text(&whole), "3.0");
  EXPECT_EQ(toml_text(&small), "1e-08");
  EXPECT_EQ(toml_text(&large), "1e+300");
  EXPECT_EQ(std::stod(toml_text(&third)), third);
  double nan = std::nan(""), infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(toml_text(&nan), "nan");
  EXPECT_EQ(toml_text(&infinite), "inf");
  EXPECT_EQ(toml_string("a\"b\\c\n\t\x7f ü"), R"("a\"b\\c\u000a\u0009\u007f ü")");
}

RC_GTEST_PROP(Fields, AreSetByFileAndByFlag, ()) {
  Config config = whole_config();
  std::vector<Field> all = fields(config);
  Dice dice;
  const Field& field = dice.one_of(all);
  RC_PRE(stands_alone(field));
  const std::string standard = toml_text(field.value);
  randomise(field, dice);
  const std::string wanted = toml_text(field.value);
  RC_LOG() << field.key << " = " << wanted;
  // Stages and sources exist before one of their keys is set.
  const std::string data = "[[data]]\nsources=[{path='a'},{path='b'}]\n[[data]]\nsources=[{path='c'}]\n";
  const Flags data_flags = {"--data.0.sources.0.path=a", "--data.0.sources.1.path=b", "--data.1.sources.0.path=c"};
  const bool of_data = field.key.starts_with("data.");
  const auto* words = std::get_if<std::string*>(&field.value);
  Flags flags = of_data ? data_flags : Flags{};
  const std::string name = "--" + field.key + "=", flag = name + (words != nullptr ? **words : wanted);
  const auto same = std::ranges::find_if(flags, [&](const std::string& f) { return f.starts_with(name); });
  if (same != flags.end())
    *same = flag;  // a key may be given once
  else
    flags.push_back(flag);

  LoadedConfig by_flag = load("", flags);
  RC_ASSERT(by_flag.violations.empty());
  RC_ASSERT(value_of(by_flag.config, field.key) == wanted);
  if (of_data) return;  // a stage's keys cannot be given separately in TOML; the round trip of to_toml covers them
  LoadedConfig by_file = load(field.key + " = " + wanted + "\n");
  RC_ASSERT(by_file.violations.empty());
  RC_ASSERT(value_of(by_file.config, field.key) == wanted);
  RC_ASSERT(by_file.place_of(field.key).line == 1);

  // The flag wins over the file, and the file alone keeps its value.
  LoadedConfig both = load(field.key + " = " + standard + "\n", flags);
  RC_ASSERT(value_of(both.config, field.key) == wanted);
}

TEST(Fields, RefuseWhatIsOutsideTheirLimits) {
  Config config = whole_config();
  int limits = 0;
  for (const Field& field : fields(config)) {
    const std::string before = toml_text(field.value);
    std::vector<Value> wrong = {{Nothing{}}};
    const bool is_number = std::holds_alternative<double*>(field.value) ||
                           std::holds_alternative<std::int64_t*>(field.value) ||
                           std::holds_alternative<Steps*>(field.value);
    const bool is_list = std::holds_alternative<std::vector<double>*>(field.value) ||
                         std::holds_alternative<std::vector<std::int64_t>*>(field.value);
    const auto add = [&](double value) { wrong.push_back(is_list ? Value{Values{{value}}} : Value{value}); };
    if (is_number || is_list) {
      add(std::nan(""));
      add(std::numeric_limits<double>::infinity());
      add(-std::numeric_limits<double>::infinity());
      if (std::isfinite(field.min)) add(field.min - 1);
      if (std::isfinite(field.max)) add(field.max * 1.5 + 1);
      if (field.above_min) add(field.min);
      wrong.push_back({"text"});
      wrong.push_back({true});
      limits += std::isfinite(field.min);
    } else {
      wrong.push_back({0.5});
    }
    if (!field.choices.empty()) wrong.push_back({"nonsense"});
    if (field.filled)
      wrong.push_back(std::holds_alternative<std::string*>(field.value) ? Value{""} : Value{Values{{""}}});
    for (const Value& value : wrong) EXPECT_NE(assign_value(field, value), "") << field.key << " = " << str(value);
    EXPECT_EQ(toml_text(field.value), before) << "a refused value must leave the field as it is";
  }
  EXPECT_GT(limits, 60);
}

}  // namespace
}  // namespace trireme::config
