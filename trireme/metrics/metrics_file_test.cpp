#include "trireme/metrics/metrics_file.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>

#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/metrics_helpers.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme::metrics {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(HexFloat, IsWhatCPrintsAndReads) {
  for (const double value : {0.0, -0.0, 1.0, 2.5, -2.5, 0.1, 1.0 / 3, 6.2391, 1e-300, 1e300, 2.2250738585072014e-308,
                             1.7976931348623157e308}) {
    std::array<char, 64> printed{};
    std::snprintf(printed.data(), printed.size(), "%a", value);
    EXPECT_EQ(hex_float(value), printed.data());
    EXPECT_EQ(std::strtod(hex_float(value).c_str(), nullptr), value);
  }
  EXPECT_EQ(hex_float(2.5), "0x1.4p+1");
  EXPECT_EQ(hex_float(5e-324), "0x0.0000000000001p-1022");
  EXPECT_EQ(hex_float(-2.2250738585072009e-308), "-0x0.fffffffffffffp-1022");
  EXPECT_EQ(hex_float(std::nan("")), "nan");
  EXPECT_EQ(hex_float(-std::nan("")), "nan");
  EXPECT_EQ(hex_float(kInfinity), "inf");
  EXPECT_EQ(hex_float(-kInfinity), "-inf");
}

TEST(JsonRecord, HasTheKeysOfTheDocumentationInTheirOrder) {
  EXPECT_EQ(
      json_record(full_step()),
      R"({"step":200,"loss":2.914,"loss_hex":"0x1.74fdf3b645a1dp+1","grad_norm":1.5,"grad_norm_hex":"0x1.8p+0",)"
      R"("lr":0.00015,"tokens":409600,"tokens_per_sec":58412.5,"tokens_per_sec_per_gpu":14603.125,)"
      R"("step_time_s":0.03125,"train_time_s":0.015625,"data_time_frac":0.004,"comm_exposed_frac":0.125,"bubble_frac":0.0625,"mfu":0.381,)"
      R"("tflops_per_gpu":376.5,"mem_peak_gib":0.0419921875,"loss_scale":65536,"skipped":true,"loss_z":0.125,)"
      R"("grad_norm_z":-1.25,"val/loss":2.875})");
}

TEST(JsonRecord, WhatIsAbsentIsLeftOut) {
  StepRecord record = cpu_step(1, 400, 6.5);
  record.comm_exposed_frac.reset();
  EXPECT_EQ(
      json_record(record),
      R"({"step":1,"loss":6.5,"loss_hex":"0x1.ap+2","grad_norm":1.5,"grad_norm_hex":"0x1.8p+0","lr":0.00015,)"
      R"("tokens":2048,"tokens_per_sec":58412.5,"tokens_per_sec_per_gpu":14603.125,"step_time_s":0.03125,"train_time_s":0.015625,)"
      R"("data_time_frac":0.004,"skipped":false})");
}

TEST(JsonRecord, WhatIsNotFiniteIsNull) {
  StepRecord record{.step = 3, .loss = std::nan(""), .grad_norm = kInfinity, .lr = -kInfinity};
  record.val_loss = std::nan("");
  EXPECT_EQ(
      json_record(record),
      R"({"step":3,"loss":null,"loss_hex":"nan","grad_norm":null,"grad_norm_hex":"inf","lr":null,"tokens":0,)"
      R"("tokens_per_sec":0,"tokens_per_sec_per_gpu":0,"step_time_s":0,"train_time_s":0,"data_time_frac":0,"skipped":false,)"
      R"("val/loss":null})");
}

TEST(LogItems, AreTheSameFieldsWithoutStepAndBits) {
  std::string shown;
  for (const LogItem& item : log_items(full_step())) shown += item.tag + "=" + format_scalar(item) + " ";
  EXPECT_EQ(shown,
            "loss=2.914 grad_norm=1.5 lr=0.00015 tokens=409600 tokens_per_sec=58412 tokens_per_sec_per_gpu=14603 "
            "step_time_s=0.03125 train_time_s=0.01562 data_time_frac=0.004 comm_exposed_frac=0.125 bubble_frac=0.0625 "
            "mfu=0.381 "
            "tflops_per_gpu=376.5 mem_peak_gib=0.04199 loss_scale=65536 skipped=1 loss_z=0.12 grad_norm_z=-1.25 "
            "val/loss=2.875 ");
}

TEST(LogItems, KeepWholeNumbersWhole) {
  for (const LogItem& item : log_items(cpu_step(1, 400, 6.5))) {
    const bool whole = item.tag == "tokens" || item.tag == "skipped";
    EXPECT_EQ(std::holds_alternative<std::int64_t>(item.scalar_value), whole) << item.tag;
  }
}

TEST(MetricsFile, AppendsALineAStep) {
  const TempFolder folder;
  const StepRecord first = cpu_step(1, 400, 6.5), second = cpu_step(2, 400, 6.25);
  {
    MetricsFile file(folder / "metrics.jsonl");
    file.append(first);
    EXPECT_EQ(file_contents(file.path()), json_record(first) + "\n");
  }
  MetricsFile(folder / "metrics.jsonl").append(second);
  EXPECT_EQ(file_contents(folder / "metrics.jsonl"), json_record(first) + "\n" + json_record(second) + "\n");
}

TEST(MetricsFile, StaysClearOfATornLine) {
  const TempFolder folder;
  std::ofstream(folder / "m") << "{\"step\":1,\"lo";
  MetricsFile(folder / "m").append(cpu_step(2, 400, 6.25));
  EXPECT_EQ(file_contents(folder / "m"), "{\"step\":1,\"lo\n" + json_record(cpu_step(2, 400, 6.25)) + "\n");
}

TEST(MetricsFile, ReportsWhatItCannotOpenOrWrite) {
  EXPECT_THROW(MetricsFile("/no/such/folder/m"), ConfigError);
  MetricsFile full("/dev/full");
  EXPECT_THROW(full.append(cpu_step(1, 400, 6.5)), DataError);
}

TEST(MetricsFile, RecordsOfLaterStepsAreDropped) {
  const TempFolder folder;
  const std::filesystem::path path = folder / "metrics.jsonl";
  {
    MetricsFile file(path);
    for (std::int64_t step = 1; step <= 12; ++step)
      file.append({.step = step, .loss = 1.0 / static_cast<double>(step)});
  }
  const std::string all = file_contents(path);
  EXPECT_EQ(drop_records_after(path, 12).last, 12);
  EXPECT_EQ(file_contents(path), all) << "nothing to drop";
  std::ofstream(path, std::ios::app) << "{\"step\":9,\"lo";  // killed in the middle of a record
  drop_records_after(path, 10);
  EXPECT_EQ(file_contents(path), all.substr(0, all.find("{\"step\":11")));
  drop_records_after(path, 0);
  EXPECT_EQ(file_contents(path), "");
  EXPECT_THROW(drop_records_after(folder / "none", 1), DataError);

  std::ofstream(path) << "{\"step\":3}\n{\"step\":4}\n{\"step\":8}\n{\"step\":9}\n";
  const KeptRecords kept = drop_records_after(path, 9);
  EXPECT_EQ(kept.last, 9);
  EXPECT_EQ(kept.gap_begin, 5);
  EXPECT_EQ(kept.gap_end, 7);
}

}  // namespace
}  // namespace trireme::metrics
