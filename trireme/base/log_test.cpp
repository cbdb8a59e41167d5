#include "trireme/base/log.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

std::string line_of(LogOptions options, std::string_view event, Log::Fields fields = {}) {
  std::ostringstream out;
  Log log(stream_sink(out), std::move(options));
  log.info(event, fields);
  return out.str();
}

TEST(Log, WritesPrefixLevelEventAndFields) {
  EXPECT_EQ(line_of({.prefix = "r5 pp1 dp0 tp1"}, "checkpoint saved", {{"step", 400}, {"bytes", 11'534'336}}),
            "[r5 pp1 dp0 tp1] info: checkpoint saved step=400 bytes=11534336\n");
  EXPECT_EQ(line_of({}, "ready"), "info: ready\n");
}

TEST(Log, KnowsTheKindsOfValues) {
  const std::string name = "dp";
  EXPECT_EQ(line_of({}, "x",
                    {{"int", std::int64_t{-3}},
                     {"unsigned", ~std::uint64_t{0}},
                     {"double", 0.1 + 0.2},
                     {"float", 2.5F},
                     {"yes", true},
                     {"literal", "tp"},
                     {"string", name},
                     {"temporary", name + "2"}}),
            "info: x int=-3 unsigned=18446744073709551615 double=0.3 float=2.5 yes=true literal=tp string=dp "
            "temporary=dp2\n");
}

TEST(Log, QuotesAndEscapesSoThatALineStaysALine) {
  EXPECT_EQ(line_of({}, "two\nlines", {{"why", "no space left"}, {"text", "a\nb\r\t\x1B"}, {"empty", ""}}),
            "info: two\\nlines why=\"no space left\" text=\"a\\nb\\r\\t\\x1b\" empty=\"\"\n");
}

TEST(LogWord, QuotesOnlyWhatNeedsIt) {
  EXPECT_EQ(log_word("runs/tiny-7_µ"), "runs/tiny-7_µ");
  EXPECT_EQ(log_word(R"(C:\runs)"), R"(C:\runs)");
  EXPECT_EQ(log_word("a=b"), R"("a=b")");
  EXPECT_EQ(log_word(R"(say "hi" \o/)"), R"("say \"hi\" \\o/")");
  EXPECT_EQ(log_word("\x7F"), R"("\x7f")");
}

TEST(Log, PutsTheTimeFirstIfItHasAClock) {
  using namespace std::chrono;
  const auto clock = [] {
    return system_clock::time_point(sys_days(year(2026) / 11 / 15) + minutes(31) + milliseconds(7042));
  };
  EXPECT_EQ(line_of({.prefix = "r0", .clock = clock}, "go"), "2026-11-15T00:31:07.042Z [r0] info: go\n");
}

TEST(Log, LeavesOutWhatIsBelowItsLevel) {
  std::ostringstream out;
  Log log(stream_sink(out), {.level = LogLevel::warning});
  log.debug("1");
  log.info("2");
  log.warning("3");
  log.error("4");
  EXPECT_EQ(out.str(), "warning: 3\nerror: 4\n");
  EXPECT_FALSE(log.enabled(LogLevel::info));
  EXPECT_TRUE(log.enabled(LogLevel::warning));

  Log all(stream_sink(out), {.level = LogLevel::debug});
  all.debug("5");
  EXPECT_EQ(out.str(), "warning: 3\nerror: 4\ndebug: 5\n");
}

TEST(Log, DoesNothingForALineThatIsNotWritten) {
  int clock_reads = 0;
  int lines = 0;
  Log log([&](std::string_view) { ++lines; },
          {.clock = [&] { return ++clock_reads, std::chrono::system_clock::time_point(); }});
  log.debug("hidden", {{"a", 1}});
  EXPECT_EQ(clock_reads, 0);
  EXPECT_EQ(lines, 0);
  log.info("shown");
  EXPECT_EQ(clock_reads, 1);
  EXPECT_EQ(lines, 1);
}

TEST(Log, HandsTheSinkWholeLines) {
  std::vector<std::string> lines;
  Log log([&](std::string_view line) { lines.emplace_back(line); }, {.prefix = "r0"});
  log.info("a", {{"b", "c d"}});
  EXPECT_EQ(lines, std::vector<std::string>{"[r0] info: a b=\"c d\"\n"});
}

std::string read_to_end(int fd) {
  std::string out;
  std::array<char, 4096> buffer;
  for (ssize_t n = 0; (n = ::read(fd, buffer.data(), buffer.size())) > 0;) {
    out.append(buffer.data(), static_cast<std::size_t>(n));
  }
  return out;
}

// Four ranks, each with its own Log (so no lock is shared) and two threads, on one pipe.
TEST(FdSink, LinesOfSeveralRanksDoNotMix) {
  constexpr int kRanks = 4, kLines = 500;
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  std::string all;
  std::thread reader([&] { all = read_to_end(ends[0]); });
  {
    std::vector<std::thread> writers;
    for (int rank = 0; rank < kRanks; ++rank) {
      writers.emplace_back([&, rank] {
        Log log(fd_sink(ends[1]), {.prefix = text("r", rank)});
        const auto speak = [&] {
          for (int i = 0; i < kLines; ++i)
            log.info("a line of some length", {{"rank", rank}, {"filler", "0123456789"}});
        };
        std::thread second(speak);
        speak();
        second.join();
      });
    }
    for (std::thread& writer : writers) writer.join();
  }
  ::close(ends[1]);
  reader.join();
  ::close(ends[0]);

  std::map<std::string, int> counts;
  std::istringstream lines(all);
  for (std::string line; std::getline(lines, line);) ++counts[line];
  std::map<std::string, int> expected;
  for (int rank = 0; rank < kRanks; ++rank) {
    expected[text("[r", rank, "] info: a line of some length rank=", rank, " filler=0123456789")] = 2 * kLines;
  }
  EXPECT_EQ(counts, expected);
}

TEST(FdSink, ALineThatCannotBeWrittenIsLost) {
  Log log(fd_sink(-1));
  EXPECT_NO_THROW(log.info("nobody hears this"));
}

}  // namespace
}  // namespace trireme
