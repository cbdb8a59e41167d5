#include "trireme/base/trace.hpp"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/temp_folder.hpp"

// Counts the allocations of this thread, to verify that a span of a disabled tracer makes none. Not inlined: gcc would
// see free() of memory from new, and warn.
namespace {
thread_local int num_allocations = 0;
}
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++num_allocations;
  return std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace trireme {
namespace {

using testing::HasSubstr;
using testing::Not;

/// A fake clock that advances by 1500 ns per read.
struct Ticks {
  std::int64_t now = 0;
  int reads = 0;
  TraceClock clock() {
    return [this] {
      ++reads;
      return now += 1500;
    };
  }
};

std::string written(const Tracer& tracer) {
  const TempFolder folder;
  tracer.write(folder / "trace.json");
  return file_contents(folder / "trace.json");
}

/// The trace after its names, which are the same in most tests.
std::string events(const Tracer& tracer) {
  const std::string text = written(tracer);
  const std::string last_name = "\"args\":{\"sort_index\":5}}";
  return text.substr(text.find(last_name) + last_name.size());
}

TEST(Trace, WritesWhoWroteItAndOneSpan) {
  Ticks ticks;
  Tracer tracer({.rank = 5, .world_size = 8, .backend = "gloo", .clock = ticks.clock()});
  tracer.enable();
  {
    const TraceSpan span(tracer, "forward", "compute", {{"microbatch", 3}, {"layer", "mlp \"up\""}, {"loss", 0.5}});
  }
  EXPECT_EQ(written(tracer),
            "{\"distributedInfo\":{\"backend\":\"gloo\",\"rank\":5,\"world_size\":8},\n"
            "\"baseTimeNanoseconds\":0,\n"
            "\"droppedEvents\":0,\n"
            "\"traceEvents\":[\n"
            "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":5,\"tid\":0,\"args\":{\"name\":\"rank 5\"}},\n"
            "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":5,\"tid\":0,\"args\":{\"sort_index\":5}},\n"
            "{\"ph\":\"X\",\"name\":\"forward\",\"cat\":\"compute\",\"pid\":5,\"tid\":0,\"ts\":3.000,\"dur\":1.500,"
            "\"args\":{\"microbatch\":3,\"layer\":\"mlp \\\"up\\\"\",\"loss\":0.5}}\n"
            "]}\n");
}

TEST(Trace, OuterSpansComeFirstAndHoldTheInner) {
  Ticks ticks;
  Tracer tracer({.rank = 5, .clock = ticks.clock()});
  tracer.enable();
  {
    const TraceSpan step(tracer, "step", "train");
    {
      const TraceSpan forward(tracer, "forward", "compute");
    }
    {
      const TraceSpan backward(tracer, "backward", "compute");
    }
  }
  EXPECT_EQ(events(tracer),
            ",\n{\"ph\":\"X\",\"name\":\"step\",\"cat\":\"train\",\"pid\":5,\"tid\":0,\"ts\":3.000,\"dur\":7.500}"
            ",\n{\"ph\":\"X\",\"name\":\"forward\",\"cat\":\"compute\",\"pid\":5,\"tid\":0,\"ts\":4.500,\"dur\":1.500}"
            ",\n{\"ph\":\"X\",\"name\":\"backward\",\"cat\":\"compute\",\"pid\":5,\"tid\":0,\"ts\":7.500,\"dur\":1.500}"
            "\n]}\n");
}

TEST(Trace, OfSpansThatStartTogetherTheLongerComesFirst) {
  Tracer tracer({.rank = 5, .clock = [] { return 0; }});
  tracer.enable();
  tracer.add_span(0, "inner", "", 100, 10);
  tracer.add_span(0, "outer", "", 100, 20);
  EXPECT_EQ(events(tracer),
            ",\n{\"ph\":\"X\",\"name\":\"outer\",\"pid\":5,\"tid\":0,\"ts\":0.100,\"dur\":0.020}"
            ",\n{\"ph\":\"X\",\"name\":\"inner\",\"pid\":5,\"tid\":0,\"ts\":0.100,\"dur\":0.010}"
            "\n]}\n");
}

TEST(Trace, Counters) {
  Ticks ticks;
  Tracer tracer({.rank = 5, .clock = ticks.clock()});
  tracer.enable();
  tracer.counter("memory", 1.5);
  EXPECT_EQ(events(tracer),
            ",\n{\"ph\":\"C\",\"name\":\"memory\",\"pid\":5,\"tid\":0,\"ts\":3.000,\"args\":{\"value\":1.5}}"
            "\n]}\n");
}

TEST(Trace, ThreadsAndStreamsHaveLanesWithNames) {
  Ticks ticks;
  Tracer tracer({.rank = 5, .clock = ticks.clock()});
  tracer.name_thread("main");
  const int stream = tracer.new_lane("comm stream");
  tracer.enable();
  std::thread([&] { const TraceSpan span(tracer, "load", "data"); }).join();
  tracer.add_span(stream, "all_reduce", "comm", 9000, 250, {{"bytes", 1024}});
  {
    const TraceSpan span(tracer, "forward", "compute");
  }
  EXPECT_EQ(events(tracer),
            ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":5,\"tid\":0,\"args\":{\"name\":\"main\"}}"
            ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":5,\"tid\":1,\"args\":{\"name\":\"comm stream\"}}"
            ",\n{\"ph\":\"X\",\"name\":\"load\",\"cat\":\"data\",\"pid\":5,\"tid\":2,\"ts\":3.000,\"dur\":1.500}"
            ",\n{\"ph\":\"X\",\"name\":\"forward\",\"cat\":\"compute\",\"pid\":5,\"tid\":0,\"ts\":6.000,\"dur\":1.500}"
            ",\n{\"ph\":\"X\",\"name\":\"all_reduce\",\"cat\":\"comm\",\"pid\":5,\"tid\":1,\"ts\":9.000,\"dur\":0.250,"
            "\"args\":{\"bytes\":1024}}"
            "\n]}\n");
}

TEST(Trace, IsOffByDefaultAndThenCostsNothing) {
  Ticks ticks;
  Tracer tracer({.clock = ticks.clock()});
  const int reads = ticks.reads;
  const int allocations = num_allocations;
  const char* name = "a name that is too long to fit into a string without memory of its own";
  {
    const TraceSpan span(tracer, name, name, {{"why", name}, {"step", 3}});
    tracer.counter(name, 1);
    tracer.add_span(0, name, name, 0, 1);
  }
  EXPECT_EQ(num_allocations, allocations);
  EXPECT_EQ(ticks.reads, reads);
  EXPECT_THAT(written(tracer), Not(HasSubstr("too long")));

  tracer.enable();
  {
    const TraceSpan span(tracer, name, name);
  }
  EXPECT_GT(num_allocations, allocations);  // the counter works
}

TEST(Trace, ASpanIsRecordedIfItBeganWhileOn) {
  Tracer tracer({});
  tracer.enable();
  {
    const TraceSpan kept(tracer, "kept", "");
    tracer.disable();
    const TraceSpan skipped(tracer, "skipped", "");
    tracer.enable();
  }
  EXPECT_THAT(written(tracer), HasSubstr("\"kept\""));
  EXPECT_THAT(written(tracer), Not(HasSubstr("\"skipped\"")));
}

TEST(Trace, ForgetsWhenTold) {
  Tracer tracer({});
  tracer.name_thread("main");
  tracer.enable();
  tracer.counter("memory", 1);
  tracer.clear();
  EXPECT_THAT(written(tracer), Not(HasSubstr("memory")));
  EXPECT_THAT(written(tracer), HasSubstr("\"main\""));
}

TEST(Trace, DropsAndCountsWhatIsTooMuch) {
  Tracer tracer({.max_events = 2});
  tracer.enable();
  for (const char* name : {"one", "two", "three", "four"}) tracer.counter(name, 1);
  EXPECT_EQ(tracer.dropped(), 2U);
  EXPECT_THAT(written(tracer), HasSubstr("\"two\""));
  EXPECT_THAT(written(tracer), Not(HasSubstr("\"three\"")));
  EXPECT_THAT(written(tracer), HasSubstr("\"droppedEvents\":2"));
}

TEST(Trace, TimesAreSmallEnoughForADoubleToHoldNanoseconds) {
  std::int64_t now = 1'790'000'000'123'456'789;
  Tracer tracer({.rank = 5, .clock = [&] { return now; }});
  tracer.enable();
  tracer.counter("memory", 1);
  const std::string text = written(tracer);
  const auto number_after = [&](const std::string& key) { return text.substr(text.find(key) + key.size()); };
  const std::int64_t base = std::stoll(number_after("\"baseTimeNanoseconds\":"));
  const double ts = std::stod(number_after("\"ts\":"));
  EXPECT_LT(ts, 8e12);
  EXPECT_EQ(base + std::llround(ts * 1000), now);

  now += 3'600'000'000'000;  // a rank that starts an hour later has the same base
  EXPECT_THAT(written(Tracer({.clock = [&] { return now; }})),
              HasSubstr("\"baseTimeNanoseconds\":" + std::to_string(base)));
}

TEST(Trace, TheRealClockIsTheTimeOfDayAndDoesNotGoBack) {
  const TraceClock clock = steady_trace_clock();
  const auto wall = [] {
    return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  };
  EXPECT_NEAR(static_cast<double>(clock()), static_cast<double>(wall()), 1e9);
  std::int64_t last = clock();
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t now = clock();
    EXPECT_LE(last, now);
    last = now;
  }
}

TEST(Trace, TakesSpansFromManyThreads) {
  constexpr int kThreads = 4, kSpans = 500;
  Tracer tracer({});
  tracer.enable();
  std::vector<std::thread> threads;
  std::atomic<int> ready = 0;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      ++ready;
      while (ready < kThreads) std::this_thread::yield();  // all alive at once, so that no lane is reused
      for (int i = 0; i < kSpans; ++i) const TraceSpan span(tracer, "work", "test", {{"i", i}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = written(tracer);
  for (int t = 0; t < kThreads; ++t) {
    const std::string lane = "\"pid\":0,\"tid\":" + std::to_string(t) + ",\"ts\"";
    int spans = 0;
    for (std::size_t at = 0; (at = text.find(lane, at)) != std::string::npos; ++at) ++spans;
    EXPECT_EQ(spans, kSpans) << "lane " << t;
  }
}

TEST(Trace, CompressesByName) {
  const TempFolder folder;
  Tracer tracer({});
  tracer.enable();
  tracer.counter("memory", 1);
  tracer.write(folder / "trace.json.gz");
  EXPECT_EQ(file_contents(folder / "trace.json.gz").substr(0, 2), "\x1F\x8B");
  std::string text(100'000, '\0');
  gzFile file = gzopen((folder / "trace.json.gz").c_str(), "rb");
  text.resize(static_cast<std::size_t>(gzread(file, text.data(), static_cast<unsigned>(text.size()))));
  gzclose(file);
  EXPECT_EQ(text, written(tracer));
}

TEST(Trace, NamesThePathItCannotWrite) {
  const TempFolder folder;
  try {
    Tracer({}).write(folder / "no/trace.json");
    FAIL() << "did not throw";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr((folder / "no/trace.json").string()));
  }
}

}  // namespace
}  // namespace trireme
