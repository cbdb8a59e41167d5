#include "trireme/metrics/ranks_file.hpp"

#include <limits>

#include <gtest/gtest.h>

namespace trireme::metrics {
namespace {

TEST(RanksRecord, HasOneValuePerRank) {
  EXPECT_EQ(json_record(RanksRecord{.step = 10,
                                    .own_work_s = {0.03123456, 1e-7},
                                    .bubbles = {0.25, std::numeric_limits<double>::quiet_NaN()},
                                    .peak_bytes = {1e12 + 1, 5}}),
            R"({"step":10,"own_work_s":[0.03123,1e-07],"bubble":[0.25,null],"peak_bytes":[1000000000001,5]})");
  EXPECT_EQ(json_record(RanksRecord{.step = 1, .peak_bytes = {7}}), R"({"step":1,"peak_bytes":[7]})");
}

TEST(RanksFile, KeepsFewerStepsOfManyRanks) {
  for (const std::int64_t step : {1, 2, 3}) EXPECT_TRUE(is_kept(step, 16));
  EXPECT_FALSE(is_kept(1, 17));
  EXPECT_TRUE(is_kept(2, 17));
  EXPECT_FALSE(is_kept(63, 1024));
  EXPECT_TRUE(is_kept(64, 1024));
}

}  // namespace
}  // namespace trireme::metrics
