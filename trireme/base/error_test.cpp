#include "trireme/base/error.hpp"

#include <ostream>
#include <string>

#include <gtest/gtest.h>

namespace trireme {
namespace {

int code(const Error& error) { return static_cast<int>(error.exit_code()); }

TEST(Error, ExitCodesAreThoseOfTheTable) {
  EXPECT_EQ(code(ConfigError("")), 64);
  EXPECT_EQ(code(DataError("")), 65);
  EXPECT_EQ(code(CheckpointError("")), 66);
  EXPECT_EQ(code(InternalError("")), 70);
  EXPECT_EQ(code(CommError(CommError::Kind::peer_lost, "")), 71);
  EXPECT_EQ(code(CommError(CommError::Kind::hang_or_mismatch, "")), 72);
  EXPECT_EQ(code(OutOfMemory("")), 73);
  EXPECT_EQ(code(NonFiniteError("")), 76);
  EXPECT_EQ(code(ComparisonFailed("")), 1);
  EXPECT_EQ(code(SecurityError("")), 77);
}

TEST(Error, ExitCodesWithoutATypeAreThoseOfTheTable) {
  EXPECT_EQ(static_cast<int>(ExitCode::done), 0);
  EXPECT_EQ(static_cast<int>(ExitCode::comparison_failed), 1);
  EXPECT_EQ(static_cast<int>(ExitCode::preempted), 75);
  EXPECT_EQ(static_cast<int>(ExitCode::interrupted), 130);
}

TEST(Error, CarriesItsText) {
  EXPECT_STREQ(DataError("tokens.bin: 3 bytes left over").what(), "tokens.bin: 3 bytes left over");
  EXPECT_STREQ(CommError(CommError::Kind::peer_lost, "rank 3").what(), "rank 3");
}

TEST(Error, IsCaughtAsErrorAndAsStandardException) {
  EXPECT_THROW(throw ConfigError("tp"), Error);
  EXPECT_THROW(throw CommError(CommError::Kind::peer_lost, "tp"), std::runtime_error);
}

TEST(Text, WritesItsPartsOneAfterTheOther) {
  EXPECT_EQ(text("tp = ", 3, ", lr = ", 0.5, ' ', true), "tp = 3, lr = 0.5 1");
}

/// Counts how often it was formatted.
struct Counted {
  int* times;
};
std::ostream& operator<<(std::ostream& out, const Counted& counted) {
  ++*counted.times;
  return out << "counted";
}

TEST(Require, BuildsItsTextOnlyOnFailure) {
  int times = 0;
  const Counted counted{&times};
  require(true, counted);
  require<ConfigError>(true, counted, counted);
  EXPECT_EQ(times, 0);
  EXPECT_THROW(require(false, counted), InternalError);
  EXPECT_EQ(times, 1);
}

TEST(Require, ThrowsTheTypeAskedForWithAllParts) {
  try {
    require<ConfigError>(5 % 2 == 0, "up", ": out_features = ", 5, " is not divisible by tp = ", 2);
    FAIL() << "did not throw";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "up: out_features = 5 is not divisible by tp = 2");
  }
}

}  // namespace
}  // namespace trireme
