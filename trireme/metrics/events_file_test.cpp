#include "trireme/metrics/events_file.hpp"

#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "trireme/testing/temp_folder.hpp"

namespace trireme::metrics {
namespace {

TEST(EventJson, EscapesWhatItIsGiven) {
  EXPECT_EQ(event_json(1.5, "warning", {{"text", "a \"b\"\n<c>"}, {"step", 3}, {"x", 0.5}, {"ok", true}}),
            R"({"time":1.500,"event":"warning","text":"a \"b\"\n<c>","step":3,"x":0.5,"ok":true})");
}

TEST(AddEvent, BeginsANewLineAfterOneThatWasCut) {
  const TempFolder folder;
  std::ofstream(folder.path() / kEventsName) << R"({"time":1,"eve)";
  EXPECT_TRUE(add_event(folder.path(), "start", {{"ranks", 4}}));
  EXPECT_TRUE(add_event(folder.path(), "exit", {{"code", 0}}));
  std::ifstream file(folder.path() / kEventsName);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(lines[1].ends_with(R"("event":"start","ranks":4})")) << lines[1];
  EXPECT_TRUE(lines[2].ends_with(R"("event":"exit","code":0})")) << lines[2];
}

TEST(AddEvent, AFolderThatIsNotThereIsNoError) {
  const TempFolder folder;
  EXPECT_FALSE(add_event(folder.path() / "none", "start", {}));
}

}  // namespace
}  // namespace trireme::metrics
