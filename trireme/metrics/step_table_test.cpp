#include "trireme/metrics/step_table.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "trireme/base/utf8.hpp"
#include "trireme/testing/metrics_helpers.hpp"

namespace trireme::metrics {
namespace {

StepRecord full_step_of(std::int64_t steps) {
  StepRecord record = full_step();
  record.steps = steps;
  return record;
}

TEST(ShortNumber, IsFixedWhereThatShowsTheNumber) {
  EXPECT_EQ(short_number(6.2391, 4, 8), "6.2391");
  EXPECT_EQ(short_number(0, 4, 8), "0.0000");
  EXPECT_EQ(short_number(0.0012, 4, 8), "0.0012");
  EXPECT_EQ(short_number(0.0004321, 4, 8), "4.32e-04");
  EXPECT_EQ(short_number(-123.4567, 4, 9), "-123.4567");
  EXPECT_EQ(short_number(1234.5678, 4, 8), "1.23e+03");
  EXPECT_EQ(short_number(1234.5678, 3, 8), "1234.568");
  EXPECT_EQ(short_number(std::nan(""), 4, 8), "nan");
  EXPECT_EQ(short_number(-INFINITY, 4, 8), "-inf");
}

TEST(SignedPercent, HasASignAlways) {
  EXPECT_EQ(signed_percent(0.021), "+2.1%");
  EXPECT_EQ(signed_percent(-0.12), "-12.0%");
  EXPECT_EQ(signed_percent(0), "+0.0%");
}

TEST(StepTable, LinesUp) {
  const StepTable table(100, full_step_of(400), Style());
  StepRecord first = cpu_step(1, 400, 6.2391);
  first.mem_peak_gib = 0.0419921875;
  StepRecord wild = full_step();
  wild.step = 400;
  wild.loss = 1.5e9;
  wild.loss_z = -11.25;
  wild.grad_norm = std::nan("");
  wild.skipped = false;
  wild.tokens_per_sec = 999'999;
  wild.mem_peak_gib = 139.8;
  EXPECT_EQ(table.header() + "\n" + table.row(first, {"first step", "cold"}) + "\n" + table.row(wild, {}) + "\n",
            " step      loss   (z)     grad       lr   tok/s  tok/s/rank    MFU      peak   data   comm  bubble\n"
            "    1    6.2391          1.500  1.5e-04   58.4K       14.6K      –  43.0 MiB   0.4%  12.5%       –   "
            "first step · "
            "cold\n"
            "  400  1.50e+09 -11.2      nan  1.5e-04      1M       14.6K  38.1%   140 GiB   0.4%  12.5%    6.2%\n");
}

TEST(StepTable, TheLossIsBoldAndTheRestOfTheLineStays) {
  const StepTable table(100, full_step_of(400), Style(true));
  EXPECT_EQ(table.header(), Style(true).dim(StepTable(100, full_step_of(400), Style()).header()));
  EXPECT_EQ(
      table.row(cpu_step(1, 400, 6.2391), {"cold"}),
      "    1    \x1B[1m6.2391\x1B[0m          1.500  1.5e-04   58.4K       14.6K      –         –   0.4%  12.5%       –"
      "   \x1B[2mcold\x1B[0m");
}

TEST(StepTable, ManyStepsTakeAWiderColumn) {
  const StepTable table(120, full_step_of(12'500'000), Style());
  EXPECT_EQ(table.header().substr(0, 19), "     step      loss");
  EXPECT_EQ(table.row(cpu_step(12'500'000, 12'500'000, 2.5), {}).substr(0, 19), " 12500000    2.5000");
}

TEST(StepTable, LeavesOutColumnsWhereTheTerminalIsNarrow) {
  EXPECT_EQ(StepTable(97, full_step_of(400), Style()).header(),
            " step      loss   (z)     grad       lr   tok/s    MFU      peak   data   comm  bubble");
  EXPECT_EQ(StepTable(80, full_step_of(400), Style()).header(),
            " step      loss   (z)     grad       lr   tok/s    MFU      peak   data   comm");
  EXPECT_EQ(StepTable(80, full_step_of(400), Style()).row(cpu_step(1, 400, 6.2391), {}),
            "    1    6.2391          1.500  1.5e-04   58.4K      –         –   0.4%  12.5%");
  EXPECT_EQ(StepTable(41, full_step_of(400), Style()).header(), " step      loss     grad       lr   tok/s");
  EXPECT_EQ(StepTable(40, full_step_of(400), Style()).header(), " step      loss     grad   tok/s");
  EXPECT_EQ(StepTable(1, full_step_of(400), Style()).header(), " step      loss");
  for (int width = 15; width <= 120; ++width)
    EXPECT_LE(static_cast<int>(display_width(StepTable(width, full_step_of(400), Style()).header())), width);
}

TEST(StepTable, WhatIsNeverMeasuredHasNoColumn) {
  StepRecord first = cpu_step(1, 400, 6.2391);
  first.mem_peak_gib = 0.0419921875;
  const StepTable table(100, first, Style());
  EXPECT_EQ(table.header(), " step      loss   (z)     grad       lr   tok/s  tok/s/rank      peak   data   comm");
  EXPECT_EQ(table.row(first, {}),
            "    1    6.2391          1.500  1.5e-04   58.4K       14.6K  43.0 MiB   0.4%  12.5%");
}

}  // namespace
}  // namespace trireme::metrics
