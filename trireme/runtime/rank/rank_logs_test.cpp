#include "trireme/runtime/rank/rank_logs.hpp"

#include <fstream>
#include <iostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/runtime/rank/init.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

void write_log(const RankLogs& logs, const char* name, const std::string& words) {
  std::ofstream(fs::path(logs.folder()) / name) << words;
}

TEST(RankLogs, ANewFolderForEachJob) {
  const TempFolder folder;
  const RankLogs first({}, 0, 3, folder.path()), second({}, 0, 1, folder.path()), node({}, 4, 7, folder.path());
  EXPECT_EQ(first.folder(), (folder / "ranks").string());
  EXPECT_EQ(second.folder(), (folder / "ranks-2").string());
  EXPECT_EQ(first.note(), text("note: the output of ranks 1 to 3 is in ", first.folder()));
  EXPECT_EQ(second.note(), text("note: the output of rank 1 is in ", second.folder()));
  EXPECT_THAT(node.note(), HasSubstr("ranks 4 to 7")) << "another host prints rank 0";
}

TEST(RankLogs, IsRemovedIfItSaysNothing) {
  const TempFolder folder;
  for (const auto& [other, code, stays] :
       {std::tuple{"", 0, false}, std::tuple{"loss 3\n", 0, true}, std::tuple{"", 66, true}}) {
    const RankLogs logs({}, 0, 1, folder.path());
    write_log(logs, "r0000.log", "printed, too\n");
    write_log(logs, "r0001.log", other);
    logs.finish(code);
    EXPECT_EQ(fs::exists(logs.folder()), stays) << other << code;
  }
  const RankLogs given(folder / "mine", 0, 1, folder.path());
  given.finish(0);
  EXPECT_TRUE(fs::exists(folder / "mine")) << "it is the user's";
}

TEST(RankLogs, WithoutAPlace) {
  const RankLogs logs({}, 0, 1, "/proc");
  EXPECT_EQ(logs.folder(), "");
  EXPECT_THAT(logs.note(), HasSubstr("the output of rank 1 is not kept: no folder can be made in /proc: "));
  logs.finish(0);
  EXPECT_NE(message_of<ConfigError>([] { const RankLogs none("/proc/mine", 0, 1); }), "no error");
}

/// What the ranks of a job have left, printed when the process ends.
struct ShownLogs {
  TempFolder folder;
  ~ShownLogs() {
    for (const char* name : {"r0000.log", "r0001.log", "r0002.log"})
      if (fs::exists(folder / "ranks" / name)) std::cerr << name << ": " << file_contents(folder / "ranks" / name);
  }
};

/// init() of a program that is a shell, as which its ranks run the script.
void init_of_shell(std::string script) {
  static const ShownLogs shown;
  require(::chdir(shown.folder.path().c_str()) == 0, "no such folder");
  std::string words[] = {"/bin/sh", "-c", std::move(script), "-n", "3"};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), words[4].data(), nullptr};
  int argc = 5;
  init(argc, argv);
}

TEST(InitDeathTest, KeepsTheOutputOfAllRanks) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(init_of_shell("echo I am $RANK"), testing::ExitedWithCode(0),
              "note: the output of ranks 1 to 2 is in .*/ranks\n.*r0001.log: I am 1\nr0002.log: I am 2");
}

}  // namespace
}  // namespace trireme
