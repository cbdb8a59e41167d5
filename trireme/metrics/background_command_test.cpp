#include "trireme/metrics/background_command.hpp"

#include <array>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme::metrics {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

constexpr milliseconds kLong(20'000);  // a machine under load; nothing here takes that long

CommandEnd end_of(const std::vector<std::string>& argv) {
  BackgroundCommand command(argv);
  const auto end = command.wait_for(kLong);
  EXPECT_TRUE(end.has_value()) << argv[0] << " did not end";
  return end.value_or(CommandEnd{false, "did not end"});
}

TEST(BackgroundCommand, SucceedsWithExitStatusZero) {
  const CommandEnd end = end_of({"true"});
  EXPECT_TRUE(end.ok);
  EXPECT_EQ(end.how, "exit status 0");
}

TEST(BackgroundCommand, ReportsTheExitStatusAndTheLastLinePrinted) {
  const CommandEnd end = end_of({"sh", "-c", "echo working; echo no such repository >&2; echo; exit 3"});
  EXPECT_FALSE(end.ok);
  EXPECT_EQ(end.how, "exit status 3: no such repository");
  EXPECT_EQ(end_of({"sh", "-c", "exit 4"}).how, "exit status 4");
}

TEST(BackgroundCommand, KeepsOnlyTheTailOfALongOutput) {
  const CommandEnd end = end_of({"sh", "-c", "i=0; while [ $i -lt 200 ]; do echo filler $i; i=$((i+1)); done; exit 1"});
  EXPECT_EQ(end.how, "exit status 1: filler 199");
}

TEST(BackgroundCommand, ReportsASignal) {
  const CommandEnd end = end_of({"sh", "-c", "kill -9 $$"});
  EXPECT_FALSE(end.ok);
  EXPECT_EQ(end.how, "killed by signal 9");
}

TEST(BackgroundCommand, HandsOverItsWordsAsTheyAre) {
  const TempFolder folder;
  end_of({"sh", "-c", R"(printf '%s|' "$@" > "$0")", (folder / "words").string(), "a b", "$HOME", "'\"", ""});
  EXPECT_EQ(file_contents(folder / "words"), "a b|$HOME|'\"||");
}

TEST(BackgroundCommand, ReadsNothing) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ASSERT_EQ(::write(ends[1], "line\n", 5), 5);
  const int our_stdin = ::dup(STDIN_FILENO);
  ::dup2(ends[0], STDIN_FILENO);  // there would be something to read
  const CommandEnd end = end_of({"sh", "-c", "! read line"});
  ::dup2(our_stdin, STDIN_FILENO);
  for (const int fd : {our_stdin, ends[0], ends[1]}) ::close(fd);
  EXPECT_TRUE(end.ok);
}

TEST(BackgroundCommand, ThatIsNotThereIsAConfigErrorThatNamesIt) {
  try {
    const BackgroundCommand command({"no-such-program-here"});
    FAIL() << "did not throw";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"no-such-program-here\" cannot be started: No such file or directory"));
  }
  EXPECT_THROW(BackgroundCommand({}), ConfigError);
}

TEST(BackgroundCommand, IsAskedWithoutBlocking) {
  BackgroundCommand command({"sleep", "600"});
  const auto before = steady_clock::now();
  EXPECT_FALSE(command.poll().has_value());
  EXPECT_FALSE(command.wait_for(milliseconds(20)).has_value());
  EXPECT_LT(steady_clock::now() - before, kLong);
}

/// The pid that a command writes to `path` after it has started.
pid_t pid_in(const std::filesystem::path& path) {
  const auto deadline = steady_clock::now() + kLong;
  while (steady_clock::now() < deadline) {
    if (std::filesystem::exists(path)) {
      const std::string text = file_contents(path);
      if (text.ends_with('\n')) return std::stoi(text);
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  ADD_FAILURE() << "the command never wrote " << path;
  return 0;
}

TEST(BackgroundCommand, IsStoppedAndReapedByItsDestructor) {
  const TempFolder folder;
  pid_t pid = 0;
  {
    BackgroundCommand command({"sh", "-c", "echo $$ > \"$0\"; exec sleep 600", (folder / "pid").string()});
    pid = pid_in(folder / "pid");
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_EQ(::kill(pid, 0), -1) << "process " << pid << " is still there";
}

TEST(BackgroundCommand, IsStoppedEvenIfItIgnoresTheRequest) {
  const TempFolder folder;
  BackgroundCommand command(
      {"sh", "-c", "trap '' TERM; echo $$ > \"$0\"; while :; do sleep 1; done", (folder / "pid").string()});
  pid_in(folder / "pid");
  command.stop();
  ASSERT_TRUE(command.poll().has_value());
  EXPECT_EQ(command.poll()->how, "killed by signal 9");
}

TEST(BackgroundCommand, CanBeStoppedWhateverSignalsWeBlock) {
  sigset_t term, before;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, &before);
  BackgroundCommand command({"sleep", "600"});
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  command.stop();
  ASSERT_TRUE(command.poll().has_value());
  EXPECT_EQ(command.poll()->how, "killed by signal 15");
}

}  // namespace
}  // namespace trireme::metrics
