#include "trireme/runtime/launcher/supervisor.hpp"

#include <chrono>
#include <string>
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
