#include "trireme/base/stop_signals.hpp"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/testing/temp_folder.hpp"

namespace trireme {
namespace {

using testing::ExitedWithCode;
using testing::KilledBySignal;

/// In a process of its own, since handlers belong to a process: exits with the noted signal.
[[noreturn]] void note_all(const std::vector<int>& signals, std::chrono::milliseconds apart) {
  const StopSignals stop(StopSignals::Then::note);
  for (const int signal : signals) {
    std::raise(signal);
    std::this_thread::sleep_for(apart);
  }
  ::_exit(StopSignals::received());
}

TEST(StopSignals, TheFirstIsNoted) {
  for (const int signal : kStopSignals) EXPECT_EXIT(note_all({signal}, {}), ExitedWithCode(signal), "");
  EXPECT_EXIT(note_all({SIGHUP, SIGINT, SIGTERM}, {}), ExitedWithCode(SIGHUP), "");
  EXPECT_EXIT(note_all({SIGUSR1, SIGUSR2, SIGINT}, {}), ExitedWithCode(SIGINT), "");
  EXPECT_EXIT(note_all({}, {}), ExitedWithCode(0), "");
}

TEST(StopSignals, TheSameAgainKillsAfterASecond) {
  const auto half = kOneRequest / 2 + std::chrono::milliseconds(50);
  EXPECT_EXIT(note_all({SIGTERM, SIGTERM}, half), ExitedWithCode(SIGTERM), "");
  EXPECT_EXIT(note_all({SIGTERM, SIGTERM, SIGTERM}, half), KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(note_all({SIGHUP, SIGHUP, SIGHUP, SIGINT}, half), ExitedWithCode(SIGHUP), "");
  EXPECT_EXIT(note_all({SIGUSR1, SIGUSR1, SIGUSR1}, half), ExitedWithCode(0), "");
}

TEST(StopSignals, LeavesOnlyWhenNothingIsHeld) {
  const TempFolder folder;
  const std::string made = (folder / "run").string();
  EXPECT_EXIT(
      {
        const StopSignals stop(StopSignals::Then::leave);
        {
          const StopSignals::Hold hold;
          std::raise(SIGINT);
          std::filesystem::create_directory(made);  // would be left behind
          StopSignals::remove_when_leaving(made);
        }
        ::_exit(1);
      },
      ExitedWithCode(static_cast<int>(stop_code(SIGINT))), "during startup: nothing was done");
  EXPECT_FALSE(std::filesystem::exists(made));
}

TEST(StopSignals, LeavesWhileThereIsNothingToSave) {
  for (const int signal : kStopSignals)
    EXPECT_EXIT(
        {
          const StopSignals stop(StopSignals::Then::leave);
          std::raise(signal);
        },
        ExitedWithCode(static_cast<int>(stop_code(signal))), "during startup: nothing was done");
  EXPECT_EXIT(
      {
        const StopSignals stop(StopSignals::Then::leave);
        StopSignals::note_from_now_on();
        std::raise(SIGTERM);
        ::_exit(StopSignals::asked() == ExitCode::preempted ? 0 : 1);
      },
      ExitedWithCode(0), "");
}

/// Whether `asked` says what it should after each signal of its own kind, in a process of its own.
[[noreturn]] void ask_after(int signal, bool (*asked)(), bool (*other)()) {
  const StopSignals stop(StopSignals::Then::leave);  // also while there is nothing to save
  if (asked()) ::_exit(1);
  std::raise(signal);
  if (!asked() || asked()) ::_exit(2);
  std::raise(signal);  // within kOneRequest: torchrun and mpirun signal a process and its group
  if (asked()) ::_exit(3);
  std::this_thread::sleep_for(kOneRequest + std::chrono::milliseconds(20));
  std::raise(signal);
  if (!asked() || other()) ::_exit(4);
  ::_exit(StopSignals::received() != 0 || StopSignals::asked() ? 5 : 0);
}

TEST(StopSignals, UserSignalsAskOnceEachAndStopNothing) {
  EXPECT_EXIT(ask_after(SIGUSR1, StopSignals::save_asked, StopSignals::record_asked), ExitedWithCode(0), "^$");
  EXPECT_EXIT(ask_after(SIGUSR2, StopSignals::record_asked, StopSignals::save_asked), ExitedWithCode(0), "^$");
}

TEST(StopSignals, ARequestToSaveIsAnswered) {
  EXPECT_EXIT(
      {
        const StopSignals stop(StopSignals::Then::note);
        StopSignals::announce("finishing step ", 12, ", then saving");
        std::raise(SIGUSR1);
        ::_exit(0);
      },
      ExitedWithCode(0), "^SIGUSR1: finishing step 12, then saving and continuing\n$");
}

TEST(StopSignals, AUserSignalMayStop) {  // trireme train --requeue
  EXPECT_EXIT(
      {
        const StopSignals stop(StopSignals::Then::note, UserSignal::stops);
        std::raise(SIGUSR1);
        ::_exit(StopSignals::asked() == ExitCode::preempted && !StopSignals::save_asked() ? 0 : 1);
      },
      ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        const StopSignals stop(StopSignals::Then::leave, UserSignal::stops);
        std::raise(SIGUSR1);
      },
      ExitedWithCode(75), "stopped by SIGUSR1 during startup");
}

/// The line would come before the error of the rank that has failed, and say that nothing is wrong.
TEST(StopSignals, AStopForAnotherRankIsSilent) {
  EXPECT_EXIT(
      {
        const StopSignals stop(StopSignals::Then::leave);
        ::sigqueue(::getpid(), SIGTERM, {.sival_int = kStopAfterFailure});
        ::pause();
      },
      ExitedWithCode(75), "^$");
}

TEST(StopSignals, WhatALauncherHeldBackArrives) {
  EXPECT_EXIT(
      {
        sigset_t held;
        ::sigemptyset(&held);
        ::sigaddset(&held, SIGUSR1);
        ::sigprocmask(SIG_BLOCK, &held, nullptr);
        std::raise(SIGUSR1);
        const StopSignals stop(StopSignals::Then::leave);
        ::_exit(StopSignals::save_asked() ? 0 : 1);
      },
      ExitedWithCode(0), "");
}

TEST(StopSignals, LeavingRemovesWhatTheStartHasMade) {
  const TempFolder folder;
  for (const bool with_more : {false, true}) {
    const std::filesystem::path made = folder / "run";
    std::filesystem::create_directory(made);
    for (const char* name : {"metrics.jsonl", ".lock"}) std::ofstream(made / name) << "";
    if (with_more) std::ofstream(made / "notes") << "";
    EXPECT_EXIT(
        {
          const StopSignals stop(StopSignals::Then::leave);
          StopSignals::remove_when_leaving(made);
          StopSignals::remove_when_leaving(made / "metrics.jsonl");
          StopSignals::remove_when_leaving(made / ".lock");
          std::raise(SIGTERM);
        },
        ExitedWithCode(75), "");
    EXPECT_FALSE(std::filesystem::exists(made / ".lock"));
    EXPECT_EQ(std::filesystem::exists(made), with_more) << "what somebody else has put there stays";
  }
}

TEST(StopSignals, WhatWasIgnoredStaysIgnored) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);
        const StopSignals stop(StopSignals::Then::leave);
        std::raise(SIGHUP);
        ::_exit(0);
      },
      ExitedWithCode(0), "");
}

TEST(StopSignals, ThenTheyAreIgnored) {
  EXPECT_EXIT(
      {
        {
          const StopSignals stop(StopSignals::Then::leave);
        }
        for (const int signal : kStopSignals) std::raise(signal);
        for (const int signal : kUserSignals) std::raise(signal);
        ::_exit(0);
      },
      ExitedWithCode(0), "");
}

}  // namespace
}  // namespace trireme
