#include "trireme/runtime/profiler.hpp"

#include <fstream>
#include <sstream>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/gzip.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string unpacked(const std::filesystem::path& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string packed = bytes.str();
  Gunzip gunzip(path.string());
  std::string_view in = packed;
  std::string out;
  for (std::vector<char> block(1 << 16);;) {
    const std::size_t n = gunzip.next(in, block);
    if (n == 0) break;
    out.append(block.data(), n);
  }
  return out;
}

std::vector<std::string> files_of(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  if (std::filesystem::exists(folder))
    for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

TEST(Profiler, KeepsTheActiveSteps) {
  const TempFolder folder;
  const std::filesystem::path out = folder / "log";
  Profiler profiler({.wait = 1, .warmup = 1, .active = 2, .folder = out, .rank = 3, .world_size = 8});
  std::vector<bool> active;
  for (int step = 1; step <= 6; ++step) {
    active.push_back(profiler.is_active());
    at::ones({step, 7}).cumsum(0);  // sizes tell the step
    profiler.step();
  }
  EXPECT_THAT(active, testing::ElementsAre(false, false, true, true, false, false));
  EXPECT_THAT(files_of(out), testing::ElementsAre("rank3.step4.pt.trace.json.gz"));
  const std::string trace = unpacked(out / "rank3.step4.pt.trace.json.gz");
  EXPECT_THAT(trace, HasSubstr(R"("distributedInfo": {"backend": "gloo", "rank": 3, "world_size": 8})"));
  EXPECT_THAT(trace, HasSubstr("aten::cumsum"));
  std::size_t sums = 0;
  for (std::size_t at = trace.find("\"aten::cumsum\""); at != std::string::npos;
       at = trace.find("\"aten::cumsum\"", at + 1))
    ++sums;
  EXPECT_EQ(sums, 2U) << "of two steps";
}

TEST(Profiler, WritesWhatThereIsWhenTrainingEndsEarly) {
  const TempFolder folder;
  {
    Profiler profiler({.wait = 0, .warmup = 0, .active = 5, .folder = folder / "early"});
    at::ones({2}).cumsum(0);
    profiler.step();
  }
  EXPECT_THAT(files_of(folder / "early"), testing::ElementsAre("rank0.step1.pt.trace.json.gz"));
  {
    Profiler never({.wait = 5, .folder = folder / "never"});
  }
  {
    Profiler prepared({.wait = 0, .warmup = 5, .folder = folder / "never"});
  }
  EXPECT_TRUE(files_of(folder / "never").empty());
  EXPECT_THAT(message_of<ConfigError>([] { Profiler({.active = 0}); }), HasSubstr("must be at least 0, 0 and 1"));
}

}  // namespace
}  // namespace trireme
