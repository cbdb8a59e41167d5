#include "trireme/runtime/launcher/supervisor.hpp"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::launcher {
namespace {

SupervisedProcess shell_member(const std::string& script) {
  return {.program = "sh", .argv = {"sh", "-c", script}, .variables = {{"PATH", "/usr/bin:/bin"}}};
}

TEST(Supervisor, OneThatCannotBeStartedTakesTheOthersWithIt) {
  SupervisedProcess missing = shell_member("");
  missing.program = missing.argv[0] = "/no/such/program";
  EXPECT_EQ(
      message_of<ConfigError>([&] { supervise({shell_member("sleep 60"), shell_member("sleep 60"), missing}, {}); }),
      "cannot start /no/such/program: No such file or directory");
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}

TEST(Supervisor, OfDeathsThatCameTogetherTheCauseIsTold) {
  // All exit while the launcher is still starting the last one, and are reaped together.
  const std::vector<SupervisedProcess> members{shell_member("exit 71"), shell_member("exit 72"),
                                               shell_member("kill -9 $$")};
  const SupervisorResult end = supervise(members, {});
  EXPECT_EQ(end.deaths.size(), 3u);
  EXPECT_NE(end.failed, 0) << "peer lost is a consequence";
}

/// What nobody reads must not keep a launcher whose processes have ended.
TEST(Supervisor, DoesNotWaitForAReaderThatDoesNotRead) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  SupervisedProcess writer = shell_member("head -c 300000 /dev/zero");
  writer.echo = true;
  const SupervisorResult end = supervise(
      {writer}, {.last_patience = std::chrono::milliseconds(300), .out_fd = ends[1], .err_fd = STDERR_FILENO});
  EXPECT_EQ(end.code, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

/// A checkpoint that is about to be complete gets the time for it.
TEST(Supervisor, LeavesAProcessTimeToFinish) {
  const TempFolder folder;
  const std::string done = (folder / "done").string(), ready = (folder / "ready").string();
  const auto run = [&](const std::string& seconds, const std::function<bool(std::size_t)>& is_finishing) {
    std::filesystem::remove(ready);
    return supervise({shell_member("until [ -e " + ready + " ]; do sleep 0.01; done; exit 3"),
                      shell_member("trap '' TERM; touch " + ready + "; sleep " + seconds + "; touch " + done)},
                     {.grace = std::chrono::milliseconds(100), .is_finishing = is_finishing});
  };
  const auto is_not_done = [&](std::size_t member) {
    EXPECT_EQ(member, 1U) << "the first one is dead";
    return !std::filesystem::exists(done);
  };
  EXPECT_EQ(run("1", is_not_done).code, 3);
  EXPECT_TRUE(std::filesystem::exists(done));
  std::filesystem::remove(done);
  run("60", [](std::size_t) { return false; });
  EXPECT_FALSE(std::filesystem::exists(done));
}

/// As the processes, which answer the first one.
TEST(Supervisor, OfTwoSignalsTheFirstIsNamed) {
  const TempFolder folder;
  const std::string ready = (folder / "ready").string();
  std::thread sender([&] {
    while (!std::filesystem::exists(ready)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ::kill(::getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ::kill(::getpid(), SIGINT);
  });
  const SupervisorResult end = supervise(
      {shell_member("trap 'sleep 0.5; exit 143' TERM; trap '' INT; touch " + ready + "; sleep 10 & wait")}, {});
  sender.join();
  EXPECT_EQ(end.stop_signal, SIGTERM);
}

TEST(Supervisor, TellsHowEachEnded) {
  const SupervisorResult end = supervise({shell_member("exit 0"), shell_member("exit 3"), shell_member("exit 0")}, {});
  EXPECT_EQ(end.code, 3);
  EXPECT_EQ(end.failed, 1);
  EXPECT_EQ(end.deaths[1].code, 3);
  EXPECT_EQ(end.deaths[1].signal, 0);
  EXPECT_GT(end.deaths[0].pid, 0);
  EXPECT_TRUE(end.stuck.empty());
}

}  // namespace
}  // namespace trireme::launcher
