// The time to build and to replay a large schedule.
#include <benchmark/benchmark.h>

#include "trireme/schedule/generate.hpp"
#include "trireme/schedule/replay.hpp"

namespace {

void generate(benchmark::State& state, const char* name) {
  for (auto _ : state)
    benchmark::DoNotOptimize(
        trireme::schedule::make_schedule(name, static_cast<int>(state.range(0)), static_cast<int>(state.range(1)), 2));
}

void replay(benchmark::State& state, const char* name) {
  const trireme::schedule::Schedule schedule =
      trireme::schedule::make_schedule(name, static_cast<int>(state.range(0)), static_cast<int>(state.range(1)), 2);
  std::int64_t steps = 0;
  for (const trireme::schedule::Program& program : schedule.programs)
    steps += static_cast<std::int64_t>(program.size());
  for (auto _ : state) benchmark::DoNotOptimize(trireme::schedule::replay(schedule));
  state.counters["steps"] = static_cast<double>(steps);
  state.counters["steps/s"] =
      benchmark::Counter(static_cast<double>(steps), benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace

BENCHMARK_CAPTURE(generate, 1f1b, "1f1b")->Args({64, 1024})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(replay, 1f1b, "1f1b")->Args({64, 1024})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(replay, interleaved, "interleaved-1f1b")->Args({64, 1024})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(replay, zb1p, "zb1p")->Args({64, 1024})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(replay, zbv, "zbv")->Args({64, 1024})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(replay, dualpipe_v, "dualpipe-v")->Args({64, 1024})->Unit(benchmark::kMillisecond);
