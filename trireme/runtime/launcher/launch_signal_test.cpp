#include <atomic>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/stop_signals.hpp"
#include "trireme/runtime/launcher/launch.hpp"
#include "trireme/runtime/launcher/signal_relay.hpp"
#include "trireme/testing/launch_helpers.hpp"

namespace trireme::launcher {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

/// Runs `bench` and sends `signals` to this process, so much time apart, once every rank has made its file "ready".
LaunchResult run_and_signal(LaunchBench& bench, const std::vector<int>& signals,
                            milliseconds apart = milliseconds(150)) {
  std::thread sender([&] {
    for (int rank = 0; rank < bench.options.ranks; ++rank)
      EXPECT_TRUE(wait_until([&] { return fs::exists(bench.folder / ("ready" + std::to_string(rank))); }));
    for (const int signal : signals) {
      ::kill(::getpid(), signal);  // to the process: any thread may get it, as from outside
      std::this_thread::sleep_for(apart);
    }
  });
  const LaunchResult result = bench.run();
  sender.join();
  return result;
}

constexpr const char* kReady = "; echo > $DIR/ready$RANK; while :; do sleep 0.01; done";

TEST(LaunchSignal, RanksWithoutAHandlerEndByIt) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
    LaunchBench bench(std::string(":") + kReady, 3);
    const LaunchResult result = run_and_signal(bench, {signal});
    EXPECT_EQ(result.code, 128 + signal);
    EXPECT_THAT(result.err, MatchesRegex("stopped by " + signal_name(signal) + ": all ranks ended within .* s\n"));
  }
}

TEST(LaunchSignal, RanksThatSaveSayHowTheyEnded) {
  for (const auto& [signal, name, code] : {std::tuple(SIGTERM, "TERM", 75), std::tuple(SIGINT, "INT", 130)}) {
    LaunchBench bench(std::string("trap 'sleep 0.$((RANK * 6)); exit ") + std::to_string(code) + "' " + name + kReady);
    const LaunchResult result = run_and_signal(bench, {signal});
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_THAT(result.err, StartsWith(std::string("stopped by SIG") + name + ":"));
    EXPECT_GT(result.seconds, 0.6) << "the slower rank had its time";
  }
}

TEST(LaunchSignal, ARankThatSavesUnaskedIsNoFailure) {
  LaunchBench bench("[ $RANK = 0 ] && exit 75; sleep 0.7; echo > $DIR/saved; exit 75");
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.code, 75);
  EXPECT_TRUE(fs::exists(bench.folder / "saved")) << "the other had its time";
  EXPECT_EQ(result.err, "stopped with code 75, as the ranks themselves decided\n");
}

TEST(LaunchSignal, APeerThatIsMissedWhileAllLeaveIsNoFailure) {
  LaunchBench bench(std::string("trap '[ $RANK = 0 ] && exit 75; sleep 0.1; exit 71' TERM") + kReady);
  const LaunchResult result = run_and_signal(bench, {SIGTERM});
  EXPECT_EQ(result.code, 75);
  EXPECT_THAT(result.err, StartsWith("stopped by SIGTERM"));
}

TEST(LaunchSignal, AFailureWhileSavingIsOne) {
  LaunchBench bench(std::string("trap '[ $RANK = 1 ] && exit 66; sleep 30' TERM") + kReady);
  const LaunchResult result = run_and_signal(bench, {SIGTERM});
  EXPECT_EQ(result.code, 66);
  EXPECT_THAT(result.err, StartsWith("error: rank 1 "));
}

TEST(LaunchSignal, UserSignalsReachRanksThatGoOn) {
  LaunchBench bench(
      "trap 'echo one >> $DIR/got$RANK' USR1; trap 'echo two >> $DIR/got$RANK; go=no' USR2; go=yes;"
      "echo > $DIR/ready$RANK; while [ $go = yes ]; do sleep 0.01; done; exit 0");
  const LaunchResult result = run_and_signal(bench, {SIGUSR1, SIGUSR2});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "");
  for (const char* name : {"got0", "got1"}) EXPECT_EQ(file_contents(bench.folder / name), "one\ntwo\n");
}

TEST(LaunchSignal, APeerLostLongAfterAUserSignalIsAFailure) {
  LaunchBench bench(
      "trap 'sig=1' USR1; sig=0; echo > $DIR/ready$RANK; while [ $sig = 0 ]; do sleep 0.01; done;"
      "[ $RANK = 1 ] && exit 71; exec sleep 60");
  const LaunchResult result = run_and_signal(bench, {SIGUSR1});
  EXPECT_EQ(result.code, 71);
  EXPECT_THAT(result.err, StartsWith("error: rank 1 "));
}

TEST(LaunchSignal, ContinueWakesStoppedRanks) {
  LaunchBench bench(
      "(while ! grep -q '^State:.T' /proc/$$/status; do sleep 0.01; done; echo > $DIR/ready$RANK) &"
      "kill -STOP $$; exit 0");
  EXPECT_EQ(run_and_signal(bench, {SIGCONT}).code, 0);
}

TEST(LaunchSignal, ASecondRequestKills) {
  for (const int signal : {SIGINT, SIGTERM}) {
    LaunchBench bench(std::string("trap '' INT TERM") + kReady);
    const LaunchResult result = run_and_signal(bench, {signal, signal}, kOneRequest + milliseconds(100));
    EXPECT_EQ(result.code, kKilledCode);
    EXPECT_THAT(result.err, StartsWith("killed by a second " + signal_name(signal) + ", without saving"));
    EXPECT_LT(result.seconds, 4);
  }
}

TEST(LaunchSignal, OneRequestDeliveredTwiceIsOne) {
  LaunchBench bench(std::string("trap 'sleep 1; exit 75' TERM") + kReady);
  EXPECT_EQ(run_and_signal(bench, {SIGTERM, SIGTERM, SIGTERM}, milliseconds(300)).code, 75);
}

TEST(LaunchSignal, AnotherSignalIsNoRepetition) {  // Slurm: SIGUSR1, and SIGTERM when the time is over
  LaunchBench bench(std::string("trap : INT USR1; trap 'sleep 0.2; exit 75' TERM") + kReady);
  EXPECT_EQ(run_and_signal(bench, {SIGUSR1, SIGUSR1, SIGINT, SIGTERM}, milliseconds(550)).code, 75);
}

TEST(LaunchSignal, RanksThatSaveHadNotBegunWhenASignalKillsThem) {
  for (const auto& [signal, code] : {std::pair(SIGTERM, 75), std::pair(SIGHUP, 75), std::pair(SIGINT, 130)}) {
    LaunchBench bench(std::string(":") + kReady);
    bench.options.saves_on_stop = true;
    EXPECT_EQ(run_and_signal(bench, {signal}).code, code);
  }
}

TEST(LaunchSignal, ARequestToSaveWaitsUntilTheRankCanTakeIt) {
  // Until StopSignals exists in a rank, SIGUSR1 is pending there: it would kill it.
  LaunchBench bench("", 1);
  bench.options.saves_on_stop = true;
  bench.options.program = {"python3", "-c", R"(
import os, signal, time
folder = os.environ["DIR"]
open(folder + "/ready0", "w").close()
while not {signal.SIGUSR1, signal.SIGUSR2} <= set(signal.sigpending()): time.sleep(0.01)
got = []
for number in (signal.SIGUSR1, signal.SIGUSR2): signal.signal(number, lambda n, _: got.append(n))
signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGUSR1, signal.SIGUSR2))
time.sleep(0.05)
print(len(got))
)"};
  const LaunchResult result = run_and_signal(bench, {SIGUSR1, SIGUSR2});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "2\n");
}

TEST(LaunchSignal, OneThatStopsByItOnPurposeIsTold) {  // trireme train --requeue
  LaunchBench bench(std::string("trap 'exit 75' USR1") + kReady);
  const LaunchResult result = run_and_signal(bench, {SIGUSR1});
  EXPECT_EQ(result.code, 75);
  EXPECT_THAT(result.err, StartsWith("stopped by SIGUSR1:"));
  LaunchBench other(std::string("trap : USR1 USR2; trap 'exit 75' TERM") + kReady);
  EXPECT_THAT(run_and_signal(other, {SIGUSR1, SIGUSR2, SIGTERM}).err, StartsWith("stopped by SIGTERM:"));
}

TEST(LaunchSignal, ItReachesThroughAWrapper) {
  LaunchBench bench("", 1);
  bench.options.program = {"bash", "-c",
                           "sh -c 'trap \"exit 130\" INT; echo > $DIR/ready0; while :; do sleep 0.01; done'; exit $?"};
  EXPECT_EQ(run_and_signal(bench, {SIGINT}).code, 130);
}

// ---- as it was before

std::atomic<int> signals_of_our_own{0};
void count_signal(int) { ++signals_of_our_own; }

TEST(LaunchSignal, HandlersAndMaskAreAsBefore) {
  struct sigaction ours{}, before{};
  ours.sa_handler = count_signal;
  ::sigaction(SIGTERM, &ours, &before);
  sigset_t mask, now;
  ::sigemptyset(&mask);
  ::sigaddset(&mask, SIGUSR2);
  sigset_t mask_before;
  ::pthread_sigmask(SIG_BLOCK, &mask, &mask_before);

  LaunchBench bench("", 1);
  bench.options.program = {"grep", "SigBlk", "/proc/self/status"};  // a shell would clear its mask
  const LaunchResult result = bench.run();

  ::pthread_sigmask(SIG_SETMASK, &mask_before, &now);
  EXPECT_TRUE(::sigismember(&now, SIGUSR2));
  EXPECT_FALSE(::sigismember(&now, SIGPIPE));
  EXPECT_EQ(result.out, "SigBlk:\t0000000000000800\n") << "a rank has the mask of the caller: SIGUSR2";
  signals_of_our_own = 0;
  ::kill(::getpid(), SIGTERM);
  EXPECT_TRUE(wait_until([] { return signals_of_our_own == 1; }));
  ::sigaction(SIGTERM, &before, nullptr);
}

TEST(LaunchSignal, WhatWasIgnoredStaysIgnored) {
  struct sigaction ignore{}, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGHUP, &ignore, &before);  // nohup
  LaunchBench bench("echo > $DIR/ready$RANK; sleep 0.4; exit 0", 1);
  EXPECT_EQ(run_and_signal(bench, {SIGHUP}).code, 0);
  ::sigaction(SIGHUP, &before, nullptr);
}

TEST(LaunchSignal, ButABrokenPipeEndsARankAsItExpects) {
  struct sigaction ignore{}, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);  // many libraries do
  LaunchBench bench("", 1);
  bench.options.program = {"grep", "SigIgn", "/proc/self/status"};
  const std::string line = bench.run().out;
  ::sigaction(SIGPIPE, &before, nullptr);
  EXPECT_EQ(std::stoull(line.substr(line.find('\t')), nullptr, 16) >> (SIGPIPE - 1) & 1, 0u) << line;
}

TEST(LaunchSignal, IgnoredChildrenStillHaveAnExitCode) {
  struct sigaction ignore{}, before{}, after{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGCHLD, &ignore, &before);
  EXPECT_EQ(LaunchBench("exit 3").run().code, 3);
  ::sigaction(SIGCHLD, &before, &after);
  EXPECT_EQ(after.sa_handler, SIG_IGN);
}

TEST(LaunchSignal, OneJobAtATime) {
  const SignalRelay first;
  EXPECT_THROW(SignalRelay(), InternalError);
}

// ---- a launcher above this one

LaunchResult run_under_control(LaunchBench& bench, const std::string& requests, bool keep_open) {
  Pipe pipe = make_pipe();
  bench.options.control_fd = pipe.read.get();
  std::thread above([&] {
    for (int rank = 0; rank < bench.options.ranks; ++rank)
      wait_until([&] { return fs::exists(bench.folder / ("ready" + std::to_string(rank))); });
    EXPECT_EQ(::write(pipe.write.get(), requests.data(), requests.size()), static_cast<ssize_t>(requests.size()));
    if (!keep_open) pipe.write.reset();
  });
  const LaunchResult result = bench.run();
  above.join();
  return result;
}

TEST(LaunchControl, TheEndOfTheLifelineStopsTheRanks) {
  LaunchBench bench(std::string(":") + kReady);
  const LaunchResult result = run_under_control(bench, "", false);
  EXPECT_EQ(result.code, 71);
  EXPECT_THAT(result.err, HasSubstr("stopped by the launcher of the whole job"));
}

TEST(LaunchControl, RequestsAreFollowed) {
  LaunchBench stop(std::string(":") + kReady);
  EXPECT_EQ(run_under_control(stop, "S", true).code, 71);
  LaunchBench terminate(std::string("trap 'exit 75' TERM") + kReady);
  EXPECT_EQ(run_under_control(terminate, "T", true).code, 75);
  LaunchBench user(std::string("trap 'exit 0' USR1") + kReady);
  EXPECT_EQ(run_under_control(user, "?1", true).code, 0);
}

}  // namespace
}  // namespace trireme::launcher
