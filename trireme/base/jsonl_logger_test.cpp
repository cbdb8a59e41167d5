#include "trireme/base/jsonl_logger.hpp"

#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme {
namespace {

TEST(JsonlLogger, WritesOneObjectALineAtOnce) {
  const TempFolder folder;
  JsonlLogger logger(folder / "metrics.jsonl");
  logger.add_scalars_from_list({{"loss", 2.3}, {"tokens", std::int64_t{20480}}, {"tps", 58'412.5, "human_format"}}, 10);
  EXPECT_EQ(file_contents(folder / "metrics.jsonl"), "{\"step\":10,\"loss\":2.3,\"tokens\":20480,\"tps\":58412.5}\n");
  logger.add_scalars_from_list({{"val/\"loss\"", std::nan("")}}, 11);
  logger.add_scalars_from_list({}, 12);
  EXPECT_EQ(file_contents(folder / "metrics.jsonl"),
            "{\"step\":10,\"loss\":2.3,\"tokens\":20480,\"tps\":58412.5}\n"
            "{\"step\":11,\"val/\\\"loss\\\"\":\"NaN\"}\n"
            "{\"step\":12}\n");
}

TEST(JsonlLogger, AppendsToAnEarlierRun) {
  const TempFolder folder;
  JsonlLogger(folder / "m").add_scalars_from_list({{"a", 1.0}}, 1);
  JsonlLogger(folder / "m").add_scalars_from_list({{"a", 2.0}}, 2);
  EXPECT_EQ(file_contents(folder / "m"), "{\"step\":1,\"a\":1}\n{\"step\":2,\"a\":2}\n");
}

TEST(JsonlLogger, StaysClearOfATornLine) {
  const TempFolder folder;
  std::ofstream(folder / "m") << "{\"step\":1,\"a\":1}\n{\"step\":2,\"a";
  JsonlLogger(folder / "m").add_scalars_from_list({{"a", 3.0}}, 3);
  EXPECT_EQ(file_contents(folder / "m"), "{\"step\":1,\"a\":1}\n{\"step\":2,\"a\n{\"step\":3,\"a\":3}\n");
}

TEST(JsonlLogger, OfATagGivenTwiceTheLastCounts) {
  const TempFolder folder;
  JsonlLogger(folder / "m").add_scalars_from_list({{"a", 1.0}, {"b", 2.0}, {"a", 3.0}}, 1);
  EXPECT_EQ(file_contents(folder / "m"), "{\"step\":1,\"b\":2,\"a\":3}\n");
}

TEST(JsonlLogger, RefusesBeforeItWrites) {
  const TempFolder folder;
  JsonlLogger logger(folder / "m");
  EXPECT_THROW(logger.add_scalars_from_list({{"a", 1.0}, {"step", 1.0}}, 1), ConfigError);
  EXPECT_THROW(logger.add_scalars_from_list({{"a", 1.0}, {"b", 1.0, "?"}}, 1), ConfigError);
  EXPECT_EQ(file_contents(folder / "m"), "");
}

TEST(JsonlLogger, ReportsWhatItCannotOpenOrWrite) {
  EXPECT_THROW(JsonlLogger("/no/such/folder/m"), ConfigError);
  JsonlLogger full("/dev/full");
  EXPECT_THROW(full.add_scalars_from_list({}, 1), DataError);
}

}  // namespace
}  // namespace trireme
