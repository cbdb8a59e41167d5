#include "trireme/base/tee_logger.hpp"

#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

struct FlightRecorder final : Logger {
  void add_scalars_from_list(const std::vector<LogItem>& entries, std::int64_t iteration_step) override {
    steps.push_back(iteration_step);
    num_entries += entries.size();
    if (fails) throw DataError("full");
  }
  void flush() override { ++flushes; }

  bool fails = false;
  std::vector<std::int64_t> steps;
  std::size_t num_entries = 0;
  int flushes = 0;
};

TEST(TeeLogger, HandsOnToAll) {
  const auto a = std::make_shared<FlightRecorder>(), b = std::make_shared<FlightRecorder>();
  TeeLogger tee({a, b});
  tee.add_scalars_from_list({{"loss", 1.0}, {"lr", 2.0}}, 7);
  tee.flush();
  for (const auto& logger : {a, b}) {
    EXPECT_EQ(logger->steps, std::vector<std::int64_t>{7});
    EXPECT_EQ(logger->num_entries, 2U);
    EXPECT_EQ(logger->flushes, 1);
  }
}

TEST(TeeLogger, OneThatFailsDoesNotStopTheOthers) {
  const auto bad = std::make_shared<FlightRecorder>(), good = std::make_shared<FlightRecorder>();
  bad->fails = true;
  TeeLogger tee({bad, good});
  EXPECT_THROW(tee.add_scalars_from_list({{"loss", 1.0}}, 7), DataError);
  EXPECT_EQ(good->steps, std::vector<std::int64_t>{7});
}

TEST(TeeLogger, AnUnknownFormatReachesNobody) {
  const auto logger = std::make_shared<FlightRecorder>();
  EXPECT_THROW(TeeLogger({logger}).add_scalars_from_list({{"loss", 1.0, "?"}}, 7), ConfigError);
  EXPECT_TRUE(logger->steps.empty());
}

}  // namespace
}  // namespace trireme
