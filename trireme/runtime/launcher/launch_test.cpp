#include "trireme/runtime/launcher/launch.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/runtime/environment/environment.hpp"
#include "trireme/testing/launch_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::launcher {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(Launch, ReturnsZeroWhenAllRanksDo) {
  LaunchBench bench("echo rank $RANK", 3);
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out, "rank 0\n") << "rank 0 only";
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(bench.log(rank), "rank " + std::to_string(rank) + "\n");
}

TEST(Launch, SetsTheVariablesOfTorchrunAndItsOwn) {
  LaunchBench bench("env");
  bench.options.num_nodes = 3;
  bench.options.node_rank = 2;
  bench.options.master_addr = "h0";
  bench.options.job_id = "j1";
  bench.options.black_box_bytes = 4096;
  bench.options.variables["RANK"] = "99";
  bench.options.variables["SECRET"] = "kept";
  ASSERT_EQ(bench.run().code, 0);
  for (const char* wanted : {"RANK=5\n", "WORLD_SIZE=6\n", "LOCAL_RANK=1\n", "LOCAL_WORLD_SIZE=2\n", "GROUP_RANK=2\n",
                             "GROUP_WORLD_SIZE=3\n", "MASTER_ADDR=h0\n", "MASTER_PORT=29500\n",
                             "TORCHELASTIC_USE_AGENT_STORE=True\n", "TRIREME_LAUNCH=1\n", "TRIREME_JOB_ID=j1\n",
                             "TRIREME_LIFELINE_FD=", "TRIREME_BLACK_BOX_FD=", "OMP_NUM_THREADS=", "SECRET=kept\n"})
    EXPECT_THAT(bench.log(5), HasSubstr(wanted));
}

TEST(Launch, RanksFindThemselvesByTheirVariables) {
  LaunchBench bench("env");
  bench.options.world_size = 7;
  bench.options.first_rank = 4;
  bench.options.num_nodes = 3;
  bench.options.node_rank = 1;
  ASSERT_EQ(bench.run().code, 0);
  Variables seen;
  std::istringstream in(bench.log(5));
  for (std::string line; std::getline(in, line);)
    seen[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
  EXPECT_EQ(detect_environment(seen, {}, 0).how,
            "trireme launch: rank 5 of 7, local rank 1 of 2, node 1 of 3, store tcp://127.0.0.1:29500 (hosted by the "
            "launcher)");
}

TEST(Launch, SharesTheCoresAmongTheRanks) {
  const auto threads = [](int ranks, int wanted, const char* already) {
    LaunchBench bench("echo $OMP_NUM_THREADS", ranks);
    bench.options.threads = wanted;
    if (already != nullptr) bench.options.variables["OMP_NUM_THREADS"] = already;
    return bench.run().out;
  };
  EXPECT_EQ(threads(1, 0, nullptr), std::to_string(usable_cores()) + "\n");
  EXPECT_EQ(threads(2, 0, nullptr), std::to_string(std::max(1, usable_cores() / 2)) + "\n");
  EXPECT_EQ(threads(2, 0, "7"), "7\n");
  EXPECT_EQ(threads(2, 3, "7"), "3\n");
}

TEST(Launch, OpenMpThreadsOfRanksWaitWithoutSpinning) {
  const auto policy = [](const char* name, const char* value) {
    LaunchBench bench("echo \"$OMP_WAIT_POLICY\"", 1);
    for (const char* each : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}) bench.options.variables.erase(each);
    if (name != nullptr) bench.options.variables[name] = value;
    return bench.run().out;
  };
  EXPECT_EQ(policy(nullptr, nullptr), "PASSIVE\n");
  EXPECT_EQ(policy("OMP_WAIT_POLICY", "ACTIVE"), "ACTIVE\n") << "the user's";
  EXPECT_EQ(policy("GOMP_SPINCOUNT", "100"), "\n") << "the user's";
}

TEST(Launch, HandsOverWordsAsTheyAre) {
  LaunchBench bench("", 1);
  bench.options.program = {"printf", "%s|", "a b", "", "$HOME", "'\""};
  EXPECT_EQ(bench.run().out, "a b||$HOME|'\"|");
}

TEST(Launch, RunsAScriptWithoutAFirstLineAsAShellWould) {
  LaunchBench bench("", 1);
  const fs::path script = bench.folder / "script";
  std::ofstream(script) << "echo \"$0 $1\"\n";
  fs::permissions(script, fs::perms::owner_all);
  bench.options.program = {script.string(), "word"};
  EXPECT_EQ(bench.run().out, script.string() + " word\n");
}

TEST(Launch, TellsWhyAProgramCannotBeStarted) {
  const auto error = [](const std::vector<std::string>& program) {
    LaunchBench bench("", 3);
    bench.options.program = program;
    return message_of<ConfigError>([&] { bench.run(); });
  };
  EXPECT_EQ(error({"no-such-program"}), "cannot start no-such-program: No such file or directory");
  EXPECT_EQ(error({"/no/such/program"}), "cannot start /no/such/program: No such file or directory");
  EXPECT_EQ(error({"/etc/passwd"}), "cannot start /etc/passwd: Permission denied");
  EXPECT_EQ(error({"/tmp"}), "cannot start /tmp: Permission denied");
  EXPECT_THAT(error({}), HasSubstr("no program"));
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}

TEST(Launch, FindsPrograms) {
  LaunchBench bench("", 1);
  const fs::path first = bench.folder / "first", second = bench.folder / "second";
  for (const fs::path& folder : {first, second}) {
    fs::create_directory(folder);
    std::ofstream(folder / "tool") << "#!/bin/sh\necho " << folder.filename().string() << "\n";
  }
  bench.options.program = {"tool"};
  bench.options.variables["PATH"] = first.string() + ":" + second.string();
  EXPECT_EQ(message_of<ConfigError>([&] { bench.run(); }), "cannot start tool: Permission denied");
  fs::permissions(second / "tool", fs::perms::owner_all);
  EXPECT_EQ(bench.run().out, "second\n") << "what cannot be run is passed over";
}

TEST(Launch, RefusesNumbersThatDoNotFit) {
  const auto error = [](auto change) {
    LaunchBench bench("true");
    change(bench.options);
    return message_of<ConfigError>([&] { bench.run(); });
  };
  EXPECT_THAT(error([](LaunchOptions& o) { o.ranks = 0; }), HasSubstr("-n 0"));
  EXPECT_THAT(error([](LaunchOptions& o) { o.node_rank = 1; }), HasSubstr("--node-rank 1"));
  EXPECT_THAT(error([](LaunchOptions& o) { o.world_size = 3, o.first_rank = 2; }), HasSubstr("--first-rank 2"));
}

TEST(Launch, ARankReadsNothingAndHasOnlyItsOwnDescriptors) {
  const OwnedFd left_open(::open("/etc/passwd", O_RDONLY));  // without close-on-exec, as a library may leave it
  EXPECT_EQ(LaunchBench("readlink /proc/self/fd/0", 1).run().out, "/dev/null\n");
  LaunchBench bench("echo $TRIREME_LIFELINE_FD; exec ls /proc/self/fd", 1);
  std::istringstream in(bench.run().out);
  std::string lifeline;
  in >> lifeline;
  const std::vector<std::string> descriptors{std::istream_iterator<std::string>(in), {}};
  EXPECT_THAT(descriptors, testing::UnorderedElementsAre("0", "1", "2", "3", lifeline)) << "3 is the folder ls reads";
}

TEST(Launch, LeavesNoDescriptorBehind) {
  const auto count = [] { return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()); };
  const auto before = count();
  LaunchBench good("echo x", 3), bad("exit 3", 3), missing("", 2);
  missing.options.program = {"/no/such/program"};
  for (LaunchBench* bench : {&good, &bad, &missing}) {
    bench->options.black_box_bytes = 4096;
    message_of<ConfigError>([&] { bench->run(); });
  }
  EXPECT_EQ(count(), before);
}

TEST(Launch, StartsFromAProgramWithThreads) {
  std::atomic<bool> done = false;
  std::vector<std::thread> busy;
  for (int i = 0; i < 3; ++i)
    busy.emplace_back([&] {
      while (!done) std::make_unique<std::string>(1000, 'x');  // malloc's locks are held much of the time
    });
  for (int i = 0; i < 10; ++i) EXPECT_EQ(LaunchBench("true", 4).run().code, 0);
  done = true;
  for (std::thread& thread : busy) thread.join();
}

// ---- output

TEST(LaunchOutput, CopiesRankZeroByteForByte) {
  LaunchBench bench(R"(printf 'a\0b\rc\377'; printf 'to err' >&2)", 2);
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.out, std::string("a\0b\rc\377", 6));
  EXPECT_EQ(result.rank_err, "to err");
}

TEST(LaunchOutput, TheLogKeepsTheOrderOfBothStreams) {
  LaunchBench bench("for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done");
  ASSERT_EQ(bench.run().code, 0);
  std::string wanted;
  for (int i = 1; i < 10; ++i) wanted += "o" + std::to_string(i) + "\ne" + std::to_string(i) + "\n";
  EXPECT_EQ(bench.log(1), wanted);
}

TEST(LaunchOutput, AndForRankZeroTooWhereBothGoToOnePlace) {
  LaunchBench bench("for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done", 1);
  const OwnedFd both(::open((bench.folder / "both").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  bench.options.out_fd = bench.options.err_fd = both.get();
  std::ostringstream said;
  ASSERT_EQ(launch(bench.options, said).code, 0);
  EXPECT_THAT(bench.log(0), testing::StartsWith("o1\ne1\no2\ne2\n"));
  EXPECT_EQ(file_contents(bench.folder / "both"), bench.log(0));
}

TEST(LaunchOutput, LosesNothingOfALongOne) {
  LaunchBench bench("head -c 5000000 /dev/zero | tr '\\0' x; echo end >&2", 2);
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.out, std::string(5'000'000, 'x'));
  EXPECT_EQ(bench.log(0).size(), 5'000'004u);
  EXPECT_EQ(bench.log(1).size(), 5'000'004u);
}

TEST(LaunchOutput, ALogFolderThatCannotBeIsToldBeforeAnythingStarts) {
  LaunchBench bench("touch $DIR/started");
  std::ofstream(bench.folder / "file") << "";
  bench.options.log_folder = (bench.folder / "file" / "ranks").string();
  EXPECT_THAT(message_of<ConfigError>([&] { bench.run(); }), HasSubstr("cannot be made a folder"));
  bench.options.log_folder = (bench.folder / "ranks").string();
  fs::create_directories(bench.folder / "ranks" / "r0001.log");  // a folder where the file should be
  EXPECT_THAT(message_of<ConfigError>([&] { bench.run(); }), HasSubstr("r0001.log: cannot be opened for writing"));
  EXPECT_FALSE(fs::exists(bench.folder / "started"));
}

TEST(LaunchOutput, AFullDiskIsToldOnceAndStopsNobody) {
  LaunchBench bench("echo one; sleep 0.05; echo two; touch $DIR/done$RANK", 2);
  fs::create_directory(bench.folder / "ranks");
  for (const char* name : {"r0000.log", "r0001.log"}) fs::create_symlink("/dev/full", bench.folder / "ranks" / name);
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "one\ntwo\n");
  EXPECT_THAT(result.err, AllOf(HasSubstr("warning: cannot write "), HasSubstr("No space left on device")));
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1);
  EXPECT_TRUE(fs::exists(bench.folder / "done0") && fs::exists(bench.folder / "done1"));
}

TEST(LaunchOutput, WorksWithoutLogs) {
  LaunchBench bench("[ $RANK = 0 ] && exec sleep 9; echo said; exit 3");
  bench.options.log_folder = "";
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, AllOf(HasSubstr("  | said\n"), Not(HasSubstr("logs:"))));
}

TEST(LaunchOutput, AppendsToTheLogsOfAnEarlierStart) {
  LaunchBench bench("echo again", 1);
  bench.run();
  bench.run();
  EXPECT_EQ(bench.log(0), "again\nagain\n");
}

TEST(LaunchOutput, AChildOfARankThatHoldsThePipeIsNotWaitedFor) {
  LaunchBench bench("echo before; sleep 20 & exit 0", 2);
  const LaunchResult result = bench.run();
  EXPECT_EQ(result.code, 0);
  EXPECT_LT(result.seconds, 5);
  EXPECT_EQ(result.out, "before\n");
}

TEST(LaunchOutput, NorIsItListenedTo) {
  LaunchBench bench("if [ $RANK = 1 ]; then (sleep 0.3; echo late) & echo early; exit 0; fi; sleep 0.7");
  EXPECT_EQ(bench.run().code, 0);
  EXPECT_EQ(bench.log(1), "early\n");
}

TEST(LaunchOutput, AReaderThatWaitsMakesRankZeroWait) {
  Pipe pipe = make_pipe();
  LaunchBench bench("head -c 20000000 /dev/zero; echo > $DIR/done", 1);
  bench.options.out_fd = pipe.write.get();
  std::size_t total = 0;
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_FALSE(fs::exists(bench.folder / "done")) << "its output is in our memory";
    std::vector<char> buffer(1 << 16);
    for (ssize_t got = 0; (got = ::read(pipe.read.get(), buffer.data(), buffer.size())) > 0;)
      total += static_cast<std::size_t>(got);
  });
  std::ostringstream said;
  EXPECT_EQ(launch(bench.options, said).code, 0);
  pipe.write.reset();
  reader.join();
  EXPECT_EQ(total, 20'000'000u);
}

TEST(LaunchOutput, AReaderThatStopsDoesNotStopTheRanks) {  // Ctrl-S, a hung ssh
  Pipe pipe = make_pipe();
  LaunchBench bench(
      "head -c 5000000 /dev/zero; echo > $DIR/done; while [ ! -e $DIR/go ]; do sleep 0.01; done; echo end", 1);
  bench.options.out_fd = pipe.write.get();
  std::string seen;
  std::thread reader([&] {
    EXPECT_TRUE(wait_until([&] { return fs::exists(bench.folder / "done"); })) << "it waits for a reader";
    std::vector<char> buffer(1 << 16);
    for (ssize_t got = 0; (got = ::read(pipe.read.get(), buffer.data(), buffer.size())) > 0;) {
      seen.append(buffer.data(), static_cast<std::size_t>(got));
      if (seen.find("missing here") != std::string::npos) std::ofstream(bench.folder / "go") << "";
    }
  });
  std::ostringstream said;
  EXPECT_EQ(launch(bench.options, said).code, 0);
  pipe.write.reset();
  reader.join();
  EXPECT_EQ(bench.log(0).size(), 5'000'004u) << "the log is complete";
  // The launcher may read the last zeros from the rank's pipe after the reader went on: they follow the message.
  const std::size_t zeros = std::erase(seen, '\0');
  EXPECT_THAT(seen, testing::MatchesRegex("\n.trireme: [0-9.]+ MiB of output are missing here: .*complete.\nend\n"));
  EXPECT_GE(zeros, 1u << 20);
  EXPECT_LT(zeros, 2u << 20);
}

TEST(LaunchOutput, AReaderThatLeavesDoesNotStopTheRanks) {
  Pipe pipe = make_pipe();
  pipe.read.reset();
  LaunchBench bench("echo one; sleep 0.05; echo two; touch $DIR/done", 1);
  bench.options.out_fd = pipe.write.get();
  std::ostringstream said;
  EXPECT_EQ(launch(bench.options, said).code, 0);
  EXPECT_TRUE(fs::exists(bench.folder / "done"));
  EXPECT_EQ(bench.log(0), "one\ntwo\n");
}

TEST(LaunchOutput, AReaderThatWaitsDoesNotKeepTheLauncherFromItsRanks) {
  Pipe pipe = make_pipe();
  LaunchBench bench("if [ $RANK = 0 ]; then head -c 3000000 /dev/zero; sleep 60; else sleep 0.2; kill -9 $$; fi");
  bench.options.out_fd = pipe.write.get();
  std::thread reader([&] {  // reads only once rank 0 is gone
    const int rank0 = number_in(bench.folder / "pid");
    EXPECT_TRUE(wait_until([&] { return !process_lives(rank0); })) << "not stopped while nobody read";
    std::vector<char> buffer(1 << 16);
    while (::read(pipe.read.get(), buffer.data(), buffer.size()) > 0) {
    }
  });
  bench.options.program[2] = "[ $RANK = 0 ] && echo $$ > $DIR/pid; " + bench.options.program[2];
  std::ostringstream said;
  EXPECT_EQ(launch(bench.options, said).code, 71);
  pipe.write.reset();
  reader.join();
}

}  // namespace
}  // namespace trireme::launcher
