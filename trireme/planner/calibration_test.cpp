#include "trireme/planner/calibration.hpp"

#include <fstream>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme::planner {
namespace {

using testing::HasSubstr;

/// A small model on two ranks, with sizes and layouts drawn at random.
std::vector<MeasuredStep> random_steps(int count, const Calibration& machine, unsigned seed) {
  std::mt19937 random(seed);
  const auto one_of = [&random](std::vector<int> values) { return values[random() % values.size()]; };
  std::vector<MeasuredStep> out;
  for (int i = 0; i < count; ++i) {
    StepWork w{.layers = one_of({2, 4, 8}), .hidden = one_of({64, 128, 256, 512}), .vocab = one_of({512, 4096, 16384})};
    w.heads = w.kv_heads = w.hidden / 32;
    w.head_dim = 32;
    w.mlp_width = 3 * w.hidden;
    w.seq_len = one_of({64, 128, 512});
    w.micro_batch = one_of({1, 2, 8});
    w.microbatches = one_of({1, 4});
    w.element_bytes = 4;
    w.zero = one_of({1, 3});
    (i % 3 == 0 ? w.tp : i % 3 == 1 ? w.pp : w.dp) = 2;
    split_evenly(w);
    Machine two = machine.machine;
    two.gpus = 2;
    out.push_back({w, predict_step(w, two, machine.software).total()});
  }
  return out;
}

Calibration other_machine() {
  Calibration out = uncalibrated_cpu(2);
  out.machine.gpu.peak_flops = 2.1e11;
  out.machine.gpu.memory_bandwidth = 4e9;
  out.machine.gpu.link_bandwidth = 6e8;
  out.machine.reach.half_columns = 70;
  out.machine.reach.step_s = 3e-4;
  out.software.layer_host_s = 4e-4;
  out.software.step_host_s = 7e-3;
  return out;
}

/// Steps of a machine that is known: the fit predicts others of it.
TEST(Calibration, PredictsWhatItHasNotSeen) {
  const std::vector<MeasuredStep> seen = random_steps(30, other_machine(), 1),
                                  unseen = random_steps(40, other_machine(), 2);
  EXPECT_GT(median_error(unseen, uncalibrated_cpu(2)), 0.3);
  const Calibration found = calibrate(seen, uncalibrated_cpu(2));
  EXPECT_LT(median_error(seen, found), 0.03);
  EXPECT_LT(median_error(unseen, found), 0.08);
}

class CalibrationFile : public testing::Test {
 protected:
  std::string message(const std::string& toml) {
    const std::string path = testing::TempDir() + "machine.toml";
    std::ofstream(path) << toml;
    try {
      read_calibration(path);
      return "";
    } catch (const ConfigError& e) {
      return e.what();
    }
  }
};

TEST_F(CalibrationFile, IsReadAsItWasWritten) {
  const std::string path = testing::TempDir() + "machine.toml";
  std::ofstream(path) << to_toml(other_machine());
  const Calibration read = read_calibration(path);
  EXPECT_TRUE(read.machine.is_cpu());
  EXPECT_EQ(read.machine.per_host(), 1);
  EXPECT_EQ(read.machine.gpu.per_host, 2);
  const std::vector<MeasuredStep> steps = random_steps(10, other_machine(), 3);
  EXPECT_LT(median_error(steps, read), 1e-5);
}

TEST_F(CalibrationFile, WhatIsWrongIsNamed) {
  const std::string sound = to_toml(other_machine());
  const auto changed = [&](const std::string& key, const std::string& line) {
    const std::size_t at = sound.find("\n" + key + " = "), end = sound.find('\n', at + 1);
    return sound.substr(0, at + 1) + line + sound.substr(end);
  };
  EXPECT_EQ(message(sound), "");
  EXPECT_THAT(message(changed("half_rows", "")),
              HasSubstr("reach.half_rows is missing\n  fix: a file that `trireme bench"));
  EXPECT_THAT(message(changed("step_s", "step_s = \"fast\"")), HasSubstr("reach.step_s must be a number"));
  EXPECT_THAT(message(changed("step_s", "step_s = -1.0")), HasSubstr("reach.step_s must be a number from 0"));
  EXPECT_THAT(message(changed("peak_flops", "peak_flops = 0")), HasSubstr("a bandwidth, speed or size is 0"));
  EXPECT_THAT(message(changed("per_host", "per_host = 0")), HasSubstr("machine.per_host must be from 1 to 1024"));
  EXPECT_THAT(message(changed("name", "name = 5")), HasSubstr("machine.name must be a text"));
  EXPECT_THAT(message(sound + "colour = 1\n"), HasSubstr("trainer.colour is no constant of a machine"));
}

}  // namespace
}  // namespace trireme::planner
