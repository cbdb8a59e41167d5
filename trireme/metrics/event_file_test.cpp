#include "trireme/metrics/event_file.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/metrics/tensorboard_logger.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme::metrics {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

WallClock fixed_clock() {
  return [] { return std::chrono::system_clock::time_point(std::chrono::milliseconds(1'700'000'000'250)); };
}

std::string from_hex(std::string_view hex) {
  std::string out;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    out += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return out;
}

// The bytes below were written by TensorBoard's own RecordWriter and Event.SerializeToString().
const std::string kHeader = from_hex("0900001040fc54d9411a0d627261696e2e4576656e743a32");

TEST(TfRecord, IsWhatTensorBoardWrites) {
  EXPECT_EQ(tfrecord("hello"), from_hex("0500000000000000eab2043e68656c6c6fbb1f1c19"));
}

TEST(EventFile, IsWhatTensorBoardWrites) {
  const TempFolder folder;
  EventFile events(folder.path(), fixed_clock());
  events.add_scalars(300, {{"loss", 2.5F}, {"µ", -1.0F}});
  events.add_scalars(-1, {});
  EXPECT_EQ(file_contents(events.path()),
            tfrecord(kHeader) +
                tfrecord(from_hex("0900001040fc54d94110ac022a180a0b0a046c6f737315000020400a090a02c2b515000080bf")) +
                tfrecord(from_hex("0900001040fc54d94110ffffffffffffffffff012a00")));
}

TEST(EventFile, ReplacesBytesThatReadersWouldRefuse) {
  const TempFolder folder;
  EventFile events(folder.path(), fixed_clock());
  events.add_scalars(0, {{"a\xFF", 0.0F}});
  EXPECT_THAT(file_contents(events.path()), HasSubstr("a\uFFFD"));
}

TEST(EventFile, MakesItsFolderAndANameOfItsOwn) {
  const TempFolder folder;
  const EventFile first(folder / "tb/run", fixed_clock());
  const EventFile second(folder / "tb/run", fixed_clock());
  EXPECT_EQ(first.path().parent_path(), folder / "tb/run");
  EXPECT_THAT(first.path().filename().string(), StartsWith("events.out.tfevents.1700000000."));
  const std::string pid = std::to_string(::getpid());
  EXPECT_TRUE(first.path().string().ends_with("." + pid + ".0")) << first.path();
  EXPECT_TRUE(second.path().string().ends_with("." + pid + ".1")) << second.path();
}

TEST(EventFile, AFolderThatCannotBeMadeIsAConfigError) {
  const TempFolder folder;
  std::ofstream(folder / "file") << "x";
  EXPECT_THROW(EventFile(folder / "file/tb", fixed_clock()), ConfigError);
}

TEST(TensorBoardLogger, WritesDoublesAndIntegersAsFloats) {
  const TempFolder folder;
  TensorBoardLogger logger(folder / "a", fixed_clock());
  logger.add_scalars_from_list({{"loss", 2.5}, {"µ", std::int64_t{-1}, "d"}}, 300);
  EventFile same(folder / "b", fixed_clock());
  same.add_scalars(300, {{"loss", 2.5F}, {"µ", -1.0F}});
  EXPECT_EQ(file_contents(logger.path()), file_contents(same.path()));
}

TEST(TensorBoardLogger, RefusesAnUnknownFormatBeforeItWrites) {
  const TempFolder folder;
  TensorBoardLogger logger(folder.path(), fixed_clock());
  EXPECT_THROW(logger.add_scalars_from_list({{"loss", 2.5, "?"}}, 1), ConfigError);
  EXPECT_EQ(file_contents(logger.path()), tfrecord(kHeader));
}

}  // namespace
}  // namespace trireme::metrics
