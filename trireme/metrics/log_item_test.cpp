#include "trireme/metrics/log_item.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme::metrics {
namespace {

using Value = std::variant<double, std::int64_t>;
using testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();

std::string shown(Value value, std::optional<std::string> format = std::nullopt) {
  return format_scalar({"loss", value, std::move(format)});
}
Value integer(std::int64_t value) { return value; }

TEST(FormatScalar, WithoutAFormatHasSixDigitsAndIntegersInFull) {
  EXPECT_EQ(shown(2.3), "2.3");
  EXPECT_EQ(shown(2.0), "2");
  EXPECT_EQ(shown(0.000015), "1.5e-05");
  EXPECT_EQ(shown(integer(123'456'789)), "123456789");
  EXPECT_EQ(shown(2.3, ""), "2.3");
}

TEST(FormatScalar, HumanFormat) {
  EXPECT_EQ(shown(58'400.0, "human_format"), "58.4K");
  EXPECT_EQ(shown(integer(8'030'000'000), "human_format"), "8.03B");
}

// What Python prints for format(value, spec).
TEST(FormatScalar, PythonSpecifications) {
  EXPECT_EQ(shown(2.3, ".3E"), "2.300E+00");
  EXPECT_EQ(shown(0.00012345, ".4f"), "0.0001");
  EXPECT_EQ(shown(1234567.891, ","), "1,234,567.891");
  EXPECT_EQ(shown(1234567.891, ",.2f"), "1,234,567.89");
  EXPECT_EQ(shown(integer(1234567), ","), "1,234,567");
  EXPECT_EQ(shown(integer(1234567), ",d"), "1,234,567");
  EXPECT_EQ(shown(integer(-1234), ","), "-1,234");
  EXPECT_EQ(shown(-123456.5, ",.1f"), "-123,456.5");
  EXPECT_EQ(shown(0.1234, ".1%"), "12.3%");
  EXPECT_EQ(shown(0.5, "%"), "50.000000%");
  EXPECT_EQ(shown(integer(-5), "%"), "-500.000000%");
  EXPECT_EQ(shown(integer(12), ".2f"), "12.00");
  EXPECT_EQ(shown(integer(12), "e"), "1.200000e+01");
  EXPECT_EQ(shown(integer(7), "d"), "7");
  EXPECT_EQ(shown(3.0, "g"), "3");
  EXPECT_EQ(shown(1e-7, "g"), "1e-07");
  EXPECT_EQ(shown(1e-7, "G"), "1E-07");
  EXPECT_EQ(shown(integer(123456789), "g"), "1.23457e+08");
  EXPECT_EQ(shown(1234.5, ",e"), "1.234500e+03");
  EXPECT_EQ(shown(1e20, ","), "1e+20");
  EXPECT_EQ(shown(999.0, ",.0f"), "999");
  EXPECT_EQ(shown(1e22, ",.0f"), "10,000,000,000,000,000,000,000");
}

TEST(FormatScalar, NumbersThatAreNone) {
  EXPECT_EQ(shown(std::nan(""), ".2f"), "nan");
  EXPECT_EQ(shown(kInf, ".2F"), "INF");
  EXPECT_EQ(shown(-kInf, ",.2f"), "-inf");
  EXPECT_EQ(shown(std::nan(""), ","), "nan");
}

TEST(FormatScalar, LargestOutputFits) {
  EXPECT_EQ(shown(-std::numeric_limits<double>::max(), ".99f").size(), 1 + 309 + 1 + 99U);
}

void expect_refused(Value value, const std::string& format) {
  const LogItem item{"grad_norm", value, format};
  try {
    format_scalar(item);
    ADD_FAILURE() << "accepted " << format;
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"grad_norm\""));
    EXPECT_THAT(error.what(), HasSubstr("\"" + format + "\""));
  }
  EXPECT_THROW(check_formats({{"fine", 1.0}, item}), ConfigError) << format;
}

TEST(FormatScalar, RefusesAllElse) {
  for (const char* format :
       {"humanformat", "x", ".f", ".", ".100f", ".-1f", ".3ff", "3.1f", "f,", ",,", "..2f", ".2n", " "}) {
    expect_refused(1.0, format);
  }
}

TEST(FormatScalar, RefusesWhatPythonRefusesForTheKindOfValue) {
  expect_refused(1.0, "d");
  expect_refused(1.0, ",d");
  expect_refused(integer(1), ".3");
  expect_refused(integer(1), ".3d");
}

TEST(CheckFormats, AcceptsWhatFormatScalarAccepts) {
  EXPECT_NO_THROW(check_formats({{"a", 1.0}, {"b", 1.0, "human_format"}, {"c", integer(1), ",d"}, {"d", 1.0, ".3"}}));
  EXPECT_NO_THROW(check_formats({}));
}

}  // namespace
}  // namespace trireme::metrics
