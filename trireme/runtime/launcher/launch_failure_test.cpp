#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/runtime/launcher/launch.hpp"
#include "trireme/testing/launch_helpers.hpp"

namespace trireme::launcher {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

constexpr double kDeadline = 1.0;  // from the first exit until all ranks are gone

TEST(LaunchFailure, AKilledRankIsNamedAndTheOthersAreStopped) {
  LaunchBench bench(
      "echo $$ > $DIR/pid$RANK; echo I am $RANK; [ $RANK = 2 ] || exec sleep 60;"
      "while [ ! -e $DIR/pid0 ] || [ ! -e $DIR/pid1 ] || [ ! -e $DIR/pid3 ]; do sleep 0.01; done; kill -9 $$",
      4);
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.code, 71);
  EXPECT_LT(result.seconds, kDeadline);
  EXPECT_THAT(result.err, MatchesRegex("error: rank 2 \\(pid [0-9]+\\) was killed by signal 9 \\(SIGKILL\\)\n"
                                       "  last output:\n"
                                       "  \\| I am 2\n"
                                       "  the other 3 ranks were stopped after 0\\.[0-9][0-9] s\n"
                                       "  logs: .*/ranks/r0002.log\n"));
  EXPECT_THAT(result.err, HasSubstr("(pid " + std::to_string(number_in(bench.folder / "pid2")) + ")"));
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_FALSE(process_lives(number_in(bench.folder / ("pid" + std::to_string(rank)))));
}

TEST(LaunchFailure, ACodeIsTheLaunchersCode) {
  LaunchBench bench("[ $RANK = 1 ] && exit 72; exec sleep 60");
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.code, 72);
  EXPECT_LT(result.seconds, kDeadline);
  EXPECT_THAT(result.err, MatchesRegex("error: rank 1 \\(pid [0-9]+\\) exited with code 72\n"
                                       "  the other rank was stopped after .*"));
}

TEST(LaunchFailure, OneRankAloneHasNoOthers) {
  LaunchBench bench("exit 66", 1);
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.code, 66);
  EXPECT_THAT(result.err, Not(HasSubstr("the other")));
}

TEST(LaunchFailure, ShowsTheLastTwentyLines) {
  LaunchBench bench(
      "[ $RANK = 0 ] && exec sleep 9; for i in $(seq 100); do echo line $i; done; printf 'bar 1\\rbar 2'; exit 70");
  const LaunchResult result = bench.run();
  EXPECT_THAT(result.err, HasSubstr("  last output:\n  | line 82\n"));
  EXPECT_THAT(result.err, HasSubstr("  | line 100\n  | bar 2\n  the other rank was stopped"));
}

TEST(LaunchFailure, RankZerosWordsAreNotShownTwice) {
  LaunchBench bench("echo why; exit 70", 1);
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.out, "why\n");
  EXPECT_THAT(result.err, Not(HasSubstr("why")));
}

TEST(LaunchFailure, ARankThatEndsEarlyIsNone) {
  LaunchBench bench("[ $RANK = 0 ] && exit 0; sleep 0.5; echo $RANK > $DIR/done$RANK");
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(number_in(bench.folder / "done1"), 1);
}

TEST(LaunchFailure, PeerLostGivesWayToItsCause) {
  LaunchBench bench("case $RANK in 0) exit 71;; 1) sleep 0.08; exit 73;; esac; exec sleep 60", 3);
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.code, 73);
  EXPECT_THAT(result.err, StartsWith("error: rank 1 "));
  EXPECT_LT(result.seconds, kDeadline);
}

TEST(LaunchFailure, AnErrorOfAllRanksIsToldOnce) {
  LaunchBench same("echo 'error: no such file' >&2; echo '  fix: another' >&2; [ $RANK = 0 ] && sleep 0.3; exit 65");
  const LaunchResult once = same.run();
  EXPECT_THAT(once.err, Not(HasSubstr("last output")));
  LaunchBench other("[ $RANK = 0 ] && sleep 0.2; echo \"error: of rank $RANK\" >&2; exit 65");
  EXPECT_THAT(other.run().err, HasSubstr("  last output:\n  | error: of rank 1\n"));
}

// On a busy machine the cause takes its time, also when it has been asked to stop.
TEST(LaunchFailure, ALateCauseIsStillTheCause) {
  LaunchBench bench("[ $RANK = 0 ] && exit 71; trap '' TERM; sleep 1.3; exit 76");
  EXPECT_EQ(bench.run().code, 76);
}

TEST(LaunchFailure, PeerLostAloneDecides) {
  LaunchBench bench("[ $RANK = 1 ] && exit 71; exec sleep 60", 3);
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.code, 71);
  EXPECT_THAT(result.err, StartsWith("error: rank 1 "));
  EXPECT_LT(result.seconds, kDeadline);
}

TEST(LaunchFailure, PeerLostInEveryRankIsOneFailure) {
  LaunchBench bench("exit 71", 4);
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.code, 71);
  EXPECT_THAT(result.err, HasSubstr(" exited with code 71\n"));
}

TEST(LaunchFailure, AStoppedRankIsKilledWithTheRest) {
  LaunchBench bench(
      "echo $$ > $DIR/pid$RANK; if [ $RANK = 0 ]; then kill -STOP $$; fi;"
      "while ! grep -q '^State:.T' /proc/$(cat $DIR/pid0)/status; do sleep 0.01; done; exit 5");
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.code, 5);
  EXPECT_LT(result.seconds, 2 * kDeadline);
  EXPECT_FALSE(process_lives(number_in(bench.folder / "pid0")));
}

TEST(LaunchFailure, ARankThatIgnoresEverythingIsKilled) {
  LaunchBench bench(
      "if [ $RANK = 0 ]; then trap '' TERM INT HUP; echo > $DIR/ready; while :; do sleep 1; done; fi;"
      "while [ ! -e $DIR/ready ]; do sleep 0.01; done; exit 5");
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.code, 5);
  EXPECT_GT(result.seconds, 0.4) << "the time it had to leave its records";
  EXPECT_LT(result.seconds, 2 * kDeadline);
}

TEST(LaunchFailure, ARankThatListensIsAskedToLeaveItsRecords) {
  LaunchBench bench(
      "if [ $RANK = 0 ]; then trap '' TERM; echo > $DIR/ready;"
      "  dd bs=1 count=1 if=/proc/self/fd/$TRIREME_LIFELINE_FD 2>/dev/null > $DIR/heard; echo gone >> $DIR/heard;"
      "  exit 0; fi; while [ ! -e $DIR/ready ]; do sleep 0.01; done; exit 5");
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.code, 5);
  EXPECT_EQ(file_contents(bench.folder / "heard"), "Sgone\n");
}

TEST(LaunchFailure, ARankThatDoesNotListenIsTerminated) {
  LaunchBench bench(
      "if [ $RANK = 0 ]; then trap 'echo > $DIR/terminated; exit 0' TERM; echo > $DIR/ready; while :; do sleep 0.01; "
      "done;"
      "fi; while [ ! -e $DIR/ready ]; do sleep 0.01; done; exit 5");
  EXPECT_EQ(bench.run().code, 5);
  EXPECT_TRUE(fs::exists(bench.folder / "terminated"));
}

TEST(LaunchFailure, ChildrenOfTheRanksAreKilledToo) {
  LaunchBench bench(
      "if [ $RANK = 0 ]; then sleep 60 & echo $! > $DIR/child; wait; fi;"
      "while [ ! -s $DIR/child ]; do sleep 0.01; done; sleep 60 & echo $! > $DIR/own; exit 5");
  EXPECT_EQ(bench.run().code, 5);
  for (const char* name : {"child", "own"}) {
    const int pid = number_in(bench.folder / name);
    EXPECT_TRUE(wait_until([&] { return !process_lives(pid); })) << name;
  }
}

TEST(LaunchFailure, BlackBoxesOutliveTheirRanks) {
  LaunchBench bench(
      "printf \"I was $RANK\" | dd of=/proc/self/fd/$TRIREME_BLACK_BOX_FD conv=notrunc 2>/dev/null;"
      "echo > $DIR/wrote$RANK; while [ ! -e $DIR/wrote0 ]; do sleep 0.01; done;"
      "[ $RANK = 1 ] && kill -9 $$; exec sleep 60");
  bench.options.black_box_bytes = 4096;
  bench.options.last_call = [](const void* box) { return std::string(static_cast<const char*>(box)); };
  std::vector<std::string> stopped;
  bench.options.on_stop = [&](int rank, const void* box) {
    stopped.push_back(std::to_string(rank) + ": " + static_cast<const char*>(box));
  };
  EXPECT_THAT(bench.run().err, HasSubstr("was killed by signal 9 (SIGKILL): I was 1\n"));
  EXPECT_THAT(stopped, ElementsAre("0: I was 0", "1: I was 1"));
}

TEST(LaunchFailure, BadInputHasNothingToDoWithTheLastCall) {
  for (const auto& [code, names_it] : {std::pair(66, false), std::pair(70, true)}) {
    LaunchBench bench(text("exit ", code), 1);
    bench.options.black_box_bytes = 4096;
    bench.options.last_call = [](const void*) { return std::string("all_reduce"); };
    const std::string end = text("exited with code ", code);
    EXPECT_THAT(bench.run().err, HasSubstr(names_it ? end + ": all_reduce\n" : end + "\n"));
  }
}

TEST(LaunchFailure, ARankCannotTakeTheBlackBoxAway) {
  LaunchBench bench(": > /proc/self/fd/$TRIREME_BLACK_BOX_FD; exit 3", 1);
  bench.options.black_box_bytes = 4096;
  bench.options.last_call = [](const void* box) { return std::string(static_cast<const char*>(box)); };
  EXPECT_THAT(bench.run().err, HasSubstr(" exited with code "));
}

TEST(LaunchFailure, NoCallsBackWhenAllWentWell) {
  LaunchBench bench("true");
  bench.options.on_stop = [](int, const void*) { ADD_FAILURE(); };
  EXPECT_EQ(bench.run().code, 0);
}

/// A fake cgroup made of files, in which the kernel's counter rises as a rank dies.
LaunchResult killed_with_counter(const char* controller, const char* file, const char* line_of_self, bool rises) {
  LaunchBench bench(rises ? "echo oom_kill 3 > $FILE; kill -9 $$" : "kill -9 $$", 1);
  const fs::path folder = bench.folder / "cg" / controller / "job";
  fs::create_directories(folder);
  std::ofstream(folder / file) << "low 0\noom_kill 2\n";
  std::ofstream(bench.folder / "self") << line_of_self;
  bench.options.variables["FILE"] = (folder / file).string();
  bench.options.cgroup = {.root = bench.folder / "cg", .self = bench.folder / "self"};
  bench.options.out_of_memory_advice = "\n  fix: less";
  return bench.run();
}

TEST(LaunchFailure, AKillForWantOfMemoryIsGuessedFromTheCounter) {
  constexpr const char* kHint = "OOM killer killed a process (oom_kill rose from 2 to 3): probably this rank";
  const LaunchResult killed = killed_with_counter("", "memory.events", "0::/job\n", true);
  EXPECT_THAT(killed.err, HasSubstr(std::string(kHint) + "\n  fix: less\n"));
  EXPECT_EQ(killed.code, 73);
  EXPECT_THAT(killed_with_counter("memory", "memory.oom_control", "3:cpu:/\n4:memory:/job\n0::/\n", true).err,
              HasSubstr(kHint));
  EXPECT_THAT(killed_with_counter("", "memory.events", "0::/job\n", false).err, Not(HasSubstr("OOM")));
}

// ---- the death of the launcher itself

/// Starts a launcher in a separate process, waits until all its ranks have written their pids, and kills it.
void expect_no_rank_after_a_killed_launcher(const std::string& script, int ranks) {
  LaunchBench bench("echo $$ > $DIR/pid$RANK; " + script, ranks);
  const pid_t launcher = ::fork();
  ASSERT_GE(launcher, 0);
  if (launcher == 0) {
    bench.run();
    ::_exit(0);
  }
  std::vector<int> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(number_in(bench.folder / ("pid" + std::to_string(rank))));
    EXPECT_TRUE(process_lives(pids.back()));
  }
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  for (const int pid : pids)
    EXPECT_TRUE(wait_until([&] { return !process_lives(pid); }, std::chrono::seconds(5))) << pid;
}

TEST(LaunchFailure, NoRankOutlivesAKilledLauncher) {
  expect_no_rank_after_a_killed_launcher("exec sleep 1000", 4);
  expect_no_rank_after_a_killed_launcher("sleep 20 & wait", 2);
  expect_no_rank_after_a_killed_launcher("trap '' TERM HUP INT; while :; do sleep 1; done", 2);
}

TEST(LaunchFailure, TheLifelineOfAKilledLauncherEnds) {
  LaunchBench bench(
      "(trap '' TERM HUP; cat /proc/self/fd/$TRIREME_LIFELINE_FD; echo ended > $DIR/seen) &"
      "echo $$ > $DIR/pid; sleep 20",
      1);
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    bench.run();
    ::_exit(0);
  }
  number_in(bench.folder / "pid");
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  EXPECT_TRUE(wait_until([&] { return fs::exists(bench.folder / "seen"); }, std::chrono::seconds(5)));
}

}  // namespace
}  // namespace trireme::launcher
