#include "trireme/runtime/launcher/restarts.hpp"

#include <filesystem>
#include <sstream>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/runtime/launcher/job.hpp"
#include "trireme/testing/launch_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::launcher {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

AttemptEnd failed(int code, std::optional<std::uint64_t> checkpoints = 0) {
  return {{.code = code, .failure = "rank 1 failed"}, checkpoints};
}

// ---- the rule

TEST(RestartRule, OnlyFailuresThatMayNotComeAgain) {
  for (const int code : {70, 71, 72}) EXPECT_TRUE(RestartRule(1).after(failed(code)).again) << code;
  for (const int code : {1, 64, 65, 66, 73, 75, 76, 77, 130, 137, 139}) {
    const RestartRule::Decision decision = RestartRule(9).after(failed(code));
    EXPECT_FALSE(decision.again) << code;
    EXPECT_THAT(decision.why, HasSubstr(text("exit code ", code, " ")));
  }
}

TEST(RestartRule, NothingAfterASuccessOrAStop) {
  const std::vector<AttemptEnd> ends{{{.code = 0}, 0},
                                     {{.code = 75}, 0},
                                     {{.code = 130}, 0},
                                     {{.code = 71, .failure = "rank 0 failed", .stop_was_asked = true}, 0},
                                     {{.code = 71, .stop_was_asked = true}, 0}};
  for (const AttemptEnd& end : ends) {
    const RestartRule::Decision decision = RestartRule(9).after(end);
    EXPECT_FALSE(decision.again) << end.code;
    EXPECT_EQ(decision.why, "") << end.code;
  }
  EXPECT_EQ(RestartRule(0).after(failed(71)).why, "") << "nobody asked for restarts";
}

TEST(RestartRule, ThreeInARowWithoutACheckpoint) {
  RestartRule rule(100);
  std::vector<int> waits;
  for (int i = 0; i < kFruitlessRestarts; ++i) waits.push_back(rule.after(failed(71)).wait);
  EXPECT_EQ(waits, (std::vector{1, 2, 4}));
  const RestartRule::Decision last = rule.after(failed(71));
  EXPECT_FALSE(last.again);
  EXPECT_THAT(last.why, HasSubstr("3 restarts without a new checkpoint: the same failure would recur"));
  EXPECT_EQ(rule.restarts(), 3);
}

TEST(RestartRule, ACheckpointRestoresTheBudget) {
  RestartRule rule(7);
  for (const std::uint64_t checkpoints : {0, 0, 0, 5, 0, 0}) EXPECT_TRUE(rule.after(failed(72, checkpoints)).again);
  EXPECT_FALSE(rule.after(failed(72)).again);
  RestartRule steady(7);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(steady.after(failed(72, 1)).wait, 1) << "each wait is the first";
  EXPECT_THAT(steady.after(failed(72, 1)).why, HasSubstr("--max-restarts 7 is used up"));
}

TEST(RestartRule, WhereNobodyKnowsOfCheckpointsTheNumberDecides) {
  RestartRule rule(5);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(rule.after(failed(71, std::nullopt)).again);
  EXPECT_THAT(rule.after(failed(71, std::nullopt)).why, HasSubstr("used up"));
}

TEST(Restarts, FoldersBesideTheFirst) {
  EXPECT_EQ(attempt_folder("run/ranks", 0), "run/ranks");
  EXPECT_EQ(attempt_folder("run/ranks", 1), "run/ranks-2");
  EXPECT_EQ(attempt_folder("run/ranks/", 2), "run/ranks-3");
  EXPECT_EQ(attempt_folder("", 2), "");
}

// ---- with processes

struct JobBench {
  explicit JobBench(const std::string& script) {
    job = {.program = {"sh", "-c", script},
           .variables = {{"PATH", "/usr/local/bin:/usr/bin:/bin"}, {"DIR", folder.path().string()}},
           .ranks = 2,
           .restart_unit = milliseconds(1),
           .log_folder = (folder / "ranks").string()};
  }
  int run() { return run_job(job, said); }

  TempFolder folder;
  Job job;
  std::ostringstream said;
};

TEST(Restarts, EachAttemptIsANewJobWithItsOwnLogs) {
  JobBench bench(
      "echo $TRIREME_ATTEMPT $TORCHELASTIC_RESTART_COUNT; echo $TRIREME_JOB_ID >> $DIR/jobs$RANK;"
      "echo $TRIREME_START_ID >> $DIR/starts$RANK;"
      "[ $RANK = 1 ] && [ $TRIREME_ATTEMPT = 0 ] && kill -9 $$; [ $RANK = 1 ] && [ $TRIREME_ATTEMPT = 1 ] && exit 72;"
      "[ $TRIREME_ATTEMPT = 2 ] || exec sleep 60");
  bench.job.max_restarts = 2;
  EXPECT_EQ(bench.run(), 0) << bench.said.str();
  for (const auto& [name, attempt] : {std::pair("ranks", "0 0\n"), {"ranks-2", "1 1\n"}, {"ranks-3", "2 2\n"}})
    EXPECT_EQ(file_contents(bench.folder / name / "r0001.log"), attempt);
  std::istringstream jobs(file_contents(bench.folder / "jobs1"));
  std::string first, second, third;
  jobs >> first >> second >> third;
  EXPECT_NE(first, second);
  EXPECT_NE(second, third);
  std::istringstream starts(file_contents(bench.folder / "starts1"));
  starts >> first >> second >> third;
  EXPECT_GE(first.size(), 16u);
  EXPECT_EQ(first, second) << "of one start";
  EXPECT_EQ(second, third);
  const std::string said = bench.said.str();
  EXPECT_THAT(said, HasSubstr("restart 1 of at most 2 in 0.0 s: attempt 0 ended after "));
  EXPECT_THAT(said, HasSubstr("was killed by signal 9 (SIGKILL)\n  logs of attempt 1: "));
  EXPECT_THAT(said, HasSubstr("restart 2 of at most 2 in 0.0 s: attempt 1 ended after "));
  EXPECT_THAT(said, HasSubstr("exited with code 72\n  logs of attempt 2: "));
}

TEST(Restarts, ADeterministicCrashEndsAfterThree) {
  JobBench bench("echo >> $DIR/starts$RANK; [ $RANK = 1 ] && exit 70; exec sleep 60");
  bench.job.max_restarts = 50;
  EXPECT_EQ(bench.run(), 70);
  EXPECT_EQ(file_contents(bench.folder / "starts1"), "\n\n\n\n");
  EXPECT_THAT(bench.said.str(), HasSubstr("3 restarts without a new checkpoint: the same failure would recur\n"));
}

TEST(Restarts, AFailureThatWouldComeAgainIsNotRestarted) {
  JobBench bench("echo >> $DIR/starts$RANK; [ $RANK = 1 ] && exit 66; exec sleep 60");
  bench.job.max_restarts = 5;
  EXPECT_EQ(bench.run(), 66);
  EXPECT_EQ(file_contents(bench.folder / "starts1"), "\n");
  EXPECT_THAT(bench.said.str(), HasSubstr("not restarted: exit code 66 "));
}

/// Sends `signal` to this process when `ready` exists.
std::thread signal_when(const fs::path& ready, int signal) {
  return std::thread([ready, signal] {
    EXPECT_TRUE(wait_until([&] { return fs::exists(ready); }));
    std::this_thread::sleep_for(milliseconds(300));  // into the wait
    ::kill(::getpid(), signal);
  });
}

TEST(Restarts, AStopDuringTheWaitEndsTheJob) {
  for (const auto& [saves, signal, code] : {std::tuple(true, SIGTERM, 75), {true, SIGINT, 130}, {false, SIGHUP, 129}}) {
    JobBench bench("echo >> $DIR/starts$RANK; exit 71");
    bench.job.max_restarts = 2;
    bench.job.saves_on_stop = saves;
    bench.job.restart_unit = std::chrono::seconds(60);
    std::thread sender = signal_when(bench.folder / "starts1", signal);
    EXPECT_EQ(bench.run(), code);
    sender.join();
    EXPECT_THAT(bench.said.str(), HasSubstr("stopped by " + signal_name(signal) + " between two attempts\n"));
    EXPECT_EQ(file_contents(bench.folder / "starts1"), "\n");
  }
}

TEST(Restarts, ARequestToSaveDuringTheWaitIsNone) {
  JobBench bench("echo >> $DIR/starts$RANK; [ $TRIREME_ATTEMPT = 1 ] || exit 71");
  bench.job.max_restarts = 1;
  bench.job.restart_unit = milliseconds(800);
  std::thread sender = signal_when(bench.folder / "starts1", SIGUSR1);
  EXPECT_EQ(bench.run(), 0) << bench.said.str();
  sender.join();
}

TEST(Restarts, ACrashWhileTheJobStopsIsNotRestarted) {
  JobBench bench("trap 'kill -9 $$' TERM; echo >> $DIR/starts$RANK; while :; do sleep 0.01; done");
  bench.job.max_restarts = 3;
  std::thread sender = signal_when(bench.folder / "starts1", SIGTERM);
  EXPECT_EQ(bench.run(), 71);
  sender.join();
  EXPECT_THAT(bench.said.str(), Not(HasSubstr("restart ")));
}

TEST(Restarts, OneNodeOfSeveralCannotRestartTheJob) {
  JobBench bench("exit 0");
  bench.job.max_restarts = 3;
  bench.job.num_nodes = 2;
  bench.job.master_addr = "127.0.0.1";
  EXPECT_THAT(message_of<ConfigError>([&] { bench.run(); }), HasSubstr("fix: --hostfile, or"));
}

}  // namespace
}  // namespace trireme::launcher
