#include "trireme/base/stop_signals.hpp"

#include <chrono>
#include <csignal>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

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
  EXPECT_EXIT(note_all({SIGUSR1, SIGINT, SIGTERM}, {}), ExitedWithCode(SIGUSR1), "");
  EXPECT_EXIT(note_all({}, {}), ExitedWithCode(0), "");
}

TEST(StopSignals, TheSameAgainKillsAfterASecond) {
  const auto half = kOneRequest / 2 + std::chrono::milliseconds(50);
  EXPECT_EXIT(note_all({SIGTERM, SIGTERM}, half), ExitedWithCode(SIGTERM), "");
  EXPECT_EXIT(note_all({SIGTERM, SIGTERM, SIGTERM}, half), KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(note_all({SIGUSR1, SIGUSR1, SIGUSR1, SIGINT}, half), ExitedWithCode(SIGUSR1), "");
}

TEST(StopSignals, LeavesWhileThereIsNothingToSave) {
  for (const int signal : kStopSignals)
    EXPECT_EXIT(
        {
          const StopSignals stop(StopSignals::Then::leave);
          std::raise(signal);
        },
        ExitedWithCode(static_cast<int>(stop_code(signal))), "during the start: nothing was done");
  EXPECT_EXIT(
      {
        const StopSignals stop(StopSignals::Then::leave);
        StopSignals::note_from_now_on();
        std::raise(SIGTERM);
        ::_exit(StopSignals::asked() == ExitCode::preempted ? 0 : 1);
      },
      ExitedWithCode(0), "");
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
        ::_exit(0);
      },
      ExitedWithCode(0), "");
}

}  // namespace
}  // namespace trireme
