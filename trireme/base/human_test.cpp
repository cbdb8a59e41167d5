#include "trireme/base/human.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "trireme/base/philox.hpp"

namespace trireme {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Thousands, GroupsByThree) {
  EXPECT_EQ(thousands(0), "0");
  EXPECT_EQ(thousands(999), "999");
  EXPECT_EQ(thousands(1000), "1,000");
  EXPECT_EQ(thousands(918656), "918,656");
  EXPECT_EQ(thousands(-999), "-999");
  EXPECT_EQ(thousands(-1234567), "-1,234,567");
  EXPECT_EQ(thousands(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Thousands, OnlyAddsCommas) {
  const RandomStream random(1, "integers");
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const auto value = static_cast<std::int64_t>(random.bits(i)) >> i % 64;  // of all sizes
    std::string digits = thousands(value);
    std::erase(digits, ',');
    ASSERT_EQ(digits, std::to_string(value));
  }
}

TEST(HumanNumber, HasSixDigits) {
  EXPECT_EQ(human_number(2.3), "2.3");
  EXPECT_EQ(human_number(2.31239999), "2.3124");
  EXPECT_EQ(human_number(1e-5), "1e-05");
  EXPECT_EQ(human_number(1234567), "1.23457e+06");
  EXPECT_EQ(human_number(std::nan("")), "nan");
  EXPECT_EQ(human_number(-kInfinity), "-inf");
}

TEST(HumanCount, HasThreeDigitsAndAUnit) {
  EXPECT_EQ(human_count(1200), "1.2K");
  EXPECT_EQ(human_count(58'400), "58.4K");
  EXPECT_EQ(human_count(1'100'000), "1.1M");
  EXPECT_EQ(human_count(8.03e9), "8.03B");
  EXPECT_EQ(human_count(15e12), "15T");
  EXPECT_EQ(human_count(1e15), "1P");
  EXPECT_EQ(human_count(2e18), "2E");
  EXPECT_EQ(human_count(1.5e22), "15000E");
}

TEST(HumanCount, KeepsZerosThatMeanSomething) {
  EXPECT_EQ(human_count(100), "100");
  EXPECT_EQ(human_count(100'000), "100K");
  EXPECT_EQ(human_count(1'000'000), "1M");
  EXPECT_EQ(human_count(10.04), "10");
  EXPECT_EQ(human_count(1), "1");
}

TEST(HumanCount, RoundsBeforeItChoosesTheUnit) {
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(999.6), "1K");
  EXPECT_EQ(human_count(999'400), "999K");
  EXPECT_EQ(human_count(999'999), "1M");
}

TEST(HumanCount, BelowOneZeroAndNegative) {
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(0.0003), "0.0003");
  EXPECT_EQ(human_count(0.00012345), "0.000123");
  EXPECT_EQ(human_count(-58'400), "-58.4K");
  EXPECT_EQ(human_count(std::nan("")), "nan");
  EXPECT_EQ(human_count(-kInfinity), "-inf");
}

TEST(HumanBytes, CountsIn1024) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(1536), "1.50 KiB");
  EXPECT_EQ(human_bytes(43 * 1024.0 * 1024), "43.0 MiB");
  EXPECT_EQ(human_bytes(61.28 * 1024 * 1024 * 1024), "61.3 GiB");
  EXPECT_EQ(human_bytes(512.0 * 1024 * 1024), "512 MiB");
  EXPECT_EQ(human_bytes(-1536), "-1.50 KiB");
  EXPECT_EQ(human_bytes(std::ldexp(1, 75)), "32768 EiB");
  EXPECT_EQ(human_bytes(kInfinity), "inf B");
}

TEST(HumanBytes, NeverShows1024) {
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1.00 KiB");
  EXPECT_EQ(human_bytes(1023 * 1024), "1023 KiB");
  EXPECT_EQ(human_bytes(1023.7 * 1024), "1.00 MiB");
  EXPECT_EQ(human_bytes(9.996 * 1024), "10.0 KiB");
  EXPECT_EQ(human_bytes(999.7 * 1024), "1000 KiB");
}

TEST(HumanSeconds, ChoosesTheUnit) {
  EXPECT_EQ(human_seconds(0), "0 s");
  EXPECT_EQ(human_seconds(1.24), "1.24 s");
  EXPECT_EQ(human_seconds(0.012), "12 ms");
  EXPECT_EQ(human_seconds(0.0123456), "12.3 ms");
  EXPECT_EQ(human_seconds(0.5), "500 ms");
  EXPECT_EQ(human_seconds(42e-6), "42 µs");
  EXPECT_EQ(human_seconds(7e-9), "7 ns");
  EXPECT_EQ(human_seconds(2.5e-11), "0.025 ns");
  EXPECT_EQ(human_seconds(59.9), "59.9 s");
  EXPECT_EQ(human_seconds(-1.24), "-1.24 s");
  EXPECT_EQ(human_seconds(std::nan("")), "nan s");
}

TEST(HumanSeconds, RoundsBeforeItChoosesTheUnit) {
  EXPECT_EQ(human_seconds(0.9999), "1 s");
  EXPECT_EQ(human_seconds(0.0009999), "1 ms");
  EXPECT_EQ(human_seconds(59.97), "0:01:00");
}

TEST(HumanSeconds, IsAClockFromAMinuteOn) {
  EXPECT_EQ(human_seconds(60), "0:01:00");
  EXPECT_EQ(human_seconds(67.2), "0:01:07");
  EXPECT_EQ(human_seconds(3600 * 49), "49:00:00");
  EXPECT_EQ(human_seconds(3599.6), "1:00:00");
  EXPECT_EQ(human_seconds(-67), "-0:01:07");
  EXPECT_EQ(human_seconds(kInfinity), "inf s");
}

}  // namespace
}  // namespace trireme
