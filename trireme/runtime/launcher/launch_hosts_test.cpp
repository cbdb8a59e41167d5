#include "trireme/runtime/launcher/launch_hosts.hpp"

#include <chrono>
#include <cstdio>
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
#include "trireme/testing/launch_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::launcher {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::StartsWith;

TEST(ShellQuoted, ComesBackAsItWas) {
  EXPECT_EQ(shell_quoted("plain-1.2/x:y=z"), "plain-1.2/x:y=z");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
  const TempFolder folder;
  for (const std::string word :
       {"a b", "$HOME", "`id`", "\"", "'", "''", "\\", "a\nb", "*", "~", "!x", ";&|", "#", "é"}) {
    const std::string command = "printf %s " + shell_quoted(word) + " > " + (folder / "word").string();
    ASSERT_EQ(std::system(command.c_str()), 0);
    EXPECT_EQ(file_contents(folder / "word"), word);
  }
}

TEST(ThisHost, IsKnownByItsNames) {
  for (const char* name : {"localhost", "127.0.0.1", "::1", "n7", "n7.cluster"})
    EXPECT_TRUE(is_this_host(name, "n7.cluster")) << name;
  EXPECT_TRUE(is_this_host("n7.cluster", "n7"));
  for (const char* name : {"n70", "n7.other", "10.0.0.1", "user@n7"})
    EXPECT_FALSE(is_this_host(name, "n7.cluster")) << name;
}

TEST(HostVariables, OnlyThoseOfOurKindTravel) {
  EXPECT_THAT(variables_for_hosts({{"NCCL_DEBUG", "INFO"},
                                   {"HF_TOKEN", "secret"},
                                   {"HOME", "/root"},
                                   {"TRIREME_TORCH", "/t"},
                                   {"TRIREME_LIFELINE_FD", "3"},
                                   {"TRIREME_SECRET", "canary"},
                                   {"LD_LIBRARY_PATH", "/l"}}),
              ElementsAre(Pair("LD_LIBRARY_PATH", "/l"), Pair("NCCL_DEBUG", "INFO"), Pair("TRIREME_TORCH", "/t")));
}

TEST(HostCommand, SaysWhichRanksAreTheHosts) {
  HostsOptions options{.hosts = {{"root@h1", 4}, {"h2", 2}, {"h3", 1}},
                       .program = {"./trireme", "train", "my run.toml"},
                       .trireme = "/opt/trireme",
                       .folder = "/home/me/a b",
                       .job_id = "j7",
                       .launch_words = {"--logs", "x"},
                       .this_host = "login",
                       .variables = {{"NCCL_DEBUG", "WARN"}}};
  EXPECT_EQ(host_command(options, 1),
            "cd '/home/me/a b' && exec env NCCL_DEBUG=WARN TRIREME_JOB_ID=j7 /opt/trireme launch -n 2 --nnodes 3 "
            "--node-rank 1 --world-size 7 --first-rank 4 --master h1:29500 --control-stdin --logs x -- ./trireme train "
            "'my run.toml'");
  EXPECT_THAT(host_command(options, 2), HasSubstr("-n 1 --nnodes 3 --node-rank 2 --world-size 7 --first-rank 6 "));
  options.hosts[0].name = "localhost";
  EXPECT_THAT(host_command(options, 1), HasSubstr("--master login:29500")) << "localhost means another host there";
  options.master_addr = "fd00::1";
  EXPECT_THAT(host_command(options, 1), HasSubstr("--master '[fd00::1]:29500'"));
}

TEST(HostCommand, DoesNotShowTheSecret) {
  HostsOptions options{.hosts = {{"h1", 4}, {"h2", 2}},
                       .program = {"rank"},
                       .trireme = "/opt/trireme",
                       .folder = "/home",
                       .secret = "canary",
                       .variables = {{"TRIREME_SECRET", "canary"}}};
  EXPECT_THAT(host_command(options, 1), testing::Not(HasSubstr("canary")));
}

/// Scripts that replace ssh and `trireme launch`. The latter records its arguments, then does what the test wants;
/// $NODE is its --node-rank.
class HostsBench {
 public:
  explicit HostsBench(const std::string& body) {
    script("ssh", "echo \"$1\" >> " + (folder / "reached").string() + "; shift; exec sh -c \"$*\"");
    script("trireme", "echo \"$@\" > $PWD/words-$7; NODE=$7; echo $$ > pid$NODE; " + body);
    options.hosts = {{"a", 2}, {"b", 2}, {"localhost", 1}};
    options.program = {"rank"};
    options.trireme = (folder / "trireme").string();
    options.folder = folder.path().string();
    options.remote_shell = {(folder / "ssh").string()};
    options.variables = {{"PATH", "/usr/local/bin:/usr/bin:/bin"}};
  }
  LaunchResult run() {
    const OwnedFd out(::open((folder / "out").c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    options.out_fd = options.err_fd = out.get();
    std::ostringstream said;
    const auto start = std::chrono::steady_clock::now();
    const int code = launch_over_hosts(options, said).code;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return {code, said.str(), file_contents(folder / "out"), "", seconds};
  }
  TempFolder folder;
  HostsOptions options;

 private:
  void script(const char* name, const std::string& body) {
    std::ofstream(folder / name) << "#!/bin/sh\n" << body << "\n";
    fs::permissions(folder / name, fs::perms::owner_all);
  }
};

TEST(LaunchOverHosts, StartsALauncherOnEach) {
  HostsBench bench("echo from $NODE");
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.code, 0) << result.err << result.out;
  EXPECT_EQ(result.err, "");
  const std::string reached = file_contents(bench.folder / "reached");
  EXPECT_TRUE(reached == "a\nb\n" || reached == "b\na\n") << "no ssh to this host: " << reached;
  EXPECT_THAT(file_contents(bench.folder / "words-2"),
              AllOf(StartsWith("launch -n 1 --nnodes 3 --node-rank 2 --world-size 5 --first-rank 4 --master a:29500"),
                    testing::EndsWith("-- rank\n")));
  for (const char* line : {"from 0\n", "from 1\n", "from 2\n"}) EXPECT_THAT(result.out, HasSubstr(line));
}

TEST(LaunchOverHosts, TheFirstThatFailsStopsTheOthers) {
  HostsBench bench(
      "if [ $NODE = 1 ]; then sleep 0.2; echo error: rank 3 died >&2; exit 73; fi;"
      "dd bs=1 count=1 2>/dev/null > heard$NODE; exit 71");
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.code, 73);
  EXPECT_THAT(result.err, testing::MatchesRegex("error: host b \\(pid [0-9]+\\) exited with code 73\n"
                                                "  the other 2 hosts were stopped after .* s\n"));
  EXPECT_THAT(result.out, HasSubstr("error: rank 3 died\n"));
  EXPECT_EQ(file_contents(bench.folder / "heard0"), "S");
  EXPECT_EQ(file_contents(bench.folder / "heard2"), "S");
  EXPECT_LT(result.seconds, 3);
}

TEST(LaunchOverHosts, AHostThatOnlyLostAPeerGivesWay) {
  HostsBench bench(
      "[ $NODE = 0 ] && exit 71; if [ $NODE = 1 ]; then sleep 0.5; exit 76; fi; dd bs=1 count=1 2>/dev/null");
  EXPECT_EQ(bench.run().code, 76);
}

/// On a busy machine the cause may come long after its consequence.
TEST(LaunchOverHosts, ALateCauseIsStillTheCause) {
  HostsBench bench(
      "[ $NODE = 0 ] && exit 71; if [ $NODE = 1 ]; then sleep 1.5; exit 76; fi; dd bs=1 count=1 2>/dev/null");
  EXPECT_EQ(bench.run().code, 76);
}

TEST(LaunchOverHosts, AHostThatCannotBeReached) {
  HostsBench bench("[ $NODE = 1 ] && exit 255; dd bs=1 count=1 2>/dev/null");
  bench.options.hosts = {{"a", 1}, {"b", 1}};
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.code, 71);
  EXPECT_THAT(result.err, AllOf(StartsWith("error: host b "), HasSubstr("could not reach it, or lost it")));
}

TEST(LaunchOverHosts, SignalsTravelAsRequests) {
  HostsBench bench("dd bs=1 count=1 2>/dev/null > heard$NODE; exit 75");
  std::thread sender([&] {
    for (const char* name : {"pid0", "pid1", "pid2"}) number_in(bench.folder / name);
    ::kill(::getpid(), SIGTERM);
  });
  const LaunchResult result = bench.run();
  sender.join();
  EXPECT_EQ(result.code, 75);
  EXPECT_THAT(result.err, StartsWith("stopped by SIGTERM: all hosts ended within"));
  for (const char* name : {"heard0", "heard1", "heard2"}) EXPECT_EQ(file_contents(bench.folder / name), "T");
}

TEST(LaunchOverHosts, AHostThatDoesNotAnswerIsLeft) {
  HostsBench bench("[ $NODE = 1 ] && exit 3; trap '' TERM HUP; while :; do sleep 0.1; done");
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.code, 3);
  EXPECT_LT(result.seconds, 5);
}

TEST(LaunchOverHosts, TheLifelinesOfAKilledLauncherEnd) {
  HostsBench bench("cat > heard$NODE; echo ended >> heard$NODE");
  // ssh that outlives its parent, as sshd on the other side does
  std::ofstream(bench.folder / "ssh") << "#!/bin/sh\nshift\nmkfifo \"$PWD/f$$\" || exit 9\n"
                                         "setsid sh -c \"$*\" < \"$PWD/f$$\" &\nexec cat > \"$PWD/f$$\"\n";
  bench.options.hosts = {{"a", 1}, {"b", 1}};
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    ASSERT_EQ(::chdir(bench.folder.path().c_str()), 0);
    bench.run();
    ::_exit(0);
  }
  for (const char* name : {"pid0", "pid1"}) number_in(bench.folder / name);
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  for (const char* name : {"heard0", "heard1"})
    EXPECT_TRUE(
        wait_until([&] { return fs::exists(bench.folder / name) && file_contents(bench.folder / name) == "ended\n"; },
                   std::chrono::seconds(5)))
        << name;
}

TEST(LaunchOverHosts, RefusesNothingToDo) {
  HostsBench bench("");
  bench.options.hosts.clear();
  EXPECT_THAT(message_of<ConfigError>([&] { bench.run(); }), HasSubstr("no hosts"));
  bench.options.hosts = {{"a", 1}};
  bench.options.remote_shell = {"no-such-ssh"};
  EXPECT_EQ(message_of<ConfigError>([&] { bench.run(); }), "cannot start no-such-ssh: No such file or directory");
}

TEST(LaunchOverHosts, GivesTheSecretToEveryHostThroughStandardInput) {
  HostsBench bench("echo \"$TRIREME_SECRET\" > secret-$NODE");
  bench.options.secret = "it's a $secret";
  bench.options.variables["TRIREME_SECRET"] = "not this one";
  EXPECT_EQ(bench.run().code, 0);
  for (const char* node : {"0", "1", "2"})
    EXPECT_EQ(file_contents(bench.folder / text("secret-", node)), "it's a $secret\n");
}

}  // namespace
}  // namespace trireme::launcher
