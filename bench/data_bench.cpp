// Tokens per second when building shuffled batches from a file in page cache, and the cost of choosing samples.
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <unistd.h>

#include "trireme/data/sampling/batch.hpp"
#include "trireme/data/sampling/permutation.hpp"
#include "trireme/data/sampling/prefetch.hpp"
#include "trireme/data/sampling/synthetic.hpp"
#include "trireme/data/tokens/open_tokens.hpp"
#include "trireme/data/tokens/token_writer.hpp"

namespace {

using namespace trireme;

constexpr std::int64_t kTokens = 100'000'000;  // of two bytes
constexpr std::int64_t kVocabulary = 50'257, kDocument = 700;

/// Written on first use and removed at the end.
class WrittenFile {
 public:
  WrittenFile()
      : folder_(std::filesystem::temp_directory_path() / ("trireme_data_bench_" + std::to_string(::getpid()))) {
    std::filesystem::create_directory(folder_);
    std::vector<std::uint32_t> tokens(700'000);
    const RandomStream stream(1, "bench");
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<std::uint32_t>(stream.below(i, kVocabulary));
    const auto writer = data::write_tokens(data::TokenFormat::datatrove, path(), {.vocab_size = kVocabulary});
    for (std::int64_t i = 0; i < kTokens / kDocument; ++i)
      writer->append(std::span(tokens).subspan(static_cast<std::size_t>(i * kDocument) % tokens.size(), kDocument));
    writer->finish();
  }
  ~WrittenFile() { std::filesystem::remove_all(folder_); }
  std::filesystem::path path() const { return folder_ / "tokens.ds"; }

 private:
  std::filesystem::path folder_;
};

std::shared_ptr<const data::TokenSource> tokens() {
  static const WrittenFile file;
  static const std::shared_ptr<const data::TokenSource> source = data::open_tokens(file.path());
  return source;
}

data::Sampler sampler_of(std::int64_t seq_len, std::int64_t global_batch_size) {
  return data::Sampler(
      {.seed = 42, .global_batch_size = global_batch_size, .stages = {{.seq_len = seq_len, .sources = {{tokens()}}}}});
}

void count_tokens(benchmark::State& state, std::int64_t per_iteration) {
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(per_iteration), benchmark::Counter::kIsIterationInvariantRate);
}

constexpr std::int64_t kSamples = 8;

void batches(benchmark::State& state, data::BatchOptions options) {
  options.vocab_size = kVocabulary;
  const std::int64_t seq_len = state.range(0);
  const data::Sampler sampler = sampler_of(seq_len, kSamples);
  const data::BatchMaker maker(options);
  data::TokenBatch batch;
  std::int64_t step = 0;
  for (auto _ : state) {
    maker.make(sampler.samples(++step, {0, kSamples}), seq_len, batch);
    benchmark::DoNotOptimize(batch.num_valid_labels);
  }
  count_tokens(state, kSamples * seq_len);
}

void prefetched(benchmark::State& state) {
  const std::int64_t seq_len = state.range(0);
  const data::Sampler sampler = sampler_of(seq_len, kSamples);
  const data::BatchMaker maker({.vocab_size = kVocabulary});
  data::Prefetch prefetch(
      [&](std::int64_t step, std::int64_t, data::TokenBatch& out) {
        maker.make(sampler.samples(step, {0, kSamples}), seq_len, out);
      },
      1);
  std::int64_t step = 0;
  for (auto _ : state) prefetch.recycle(prefetch.take(++step, 0));
  count_tokens(state, kSamples * seq_len);
}

/// Sequential reading only: the limit of the file and the page cache.
void reads(benchmark::State& state) {
  std::vector<std::uint32_t> row(static_cast<std::size_t>(state.range(0)));
  std::int64_t first = 0;
  for (auto _ : state) {
    tokens()->read(first, row);
    first = (first + state.range(0)) % (tokens()->num_tokens() - state.range(0));
    benchmark::DoNotOptimize(row.data());
  }
  count_tokens(state, state.range(0));
}

void lookups(benchmark::State& state) {
  const auto n = std::uint64_t{1} << state.range(0);
  const data::Permutation permutation(RandomStream(1, "bench"), 0, n);
  std::uint64_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(permutation(i++ & (n - 1)));
}

void choosing_samples(benchmark::State& state) {
  const data::Sampler sampler = sampler_of(1024, 1024);
  std::int64_t step = 0;
  for (auto _ : state) benchmark::DoNotOptimize(sampler.samples(++step, {0, 1024}));
  state.counters["samples/s"] = benchmark::Counter(1024, benchmark::Counter::kIsIterationInvariantRate);
}

/// A new sampler of three stages with four sources each, and its first batch, as in a resumed run.
void resume_at_step_1e9(benchmark::State& state) {
  data::SamplingPlan plan{.seed = 42, .global_batch_size = 1024};
  for (const std::int64_t start : {1, 1'000'000, 900'000'000}) {
    data::SamplingStage stage{.start_step = start, .seq_len = 1024};
    for (const std::uint64_t source : {1, 2, 3, 4})
      stage.sources.push_back(
          {std::make_shared<data::SyntheticTokens>(source, 100, kTokens), static_cast<double>(source)});
    plan.stages.push_back(stage);
  }
  for (auto _ : state) {
    const data::Sampler sampler(plan, {1'000'000'000, {1024 * 999'999LL, 1024 * 899'000'000LL, 1024 * 100'000'001LL}});
    benchmark::DoNotOptimize(sampler.samples(1'000'000'001, {0, kSamples}));
  }
}

void jump_to_step_1e9(benchmark::State& state) {
  const data::Sampler sampler = sampler_of(1024, 1024);
  for (auto _ : state) benchmark::DoNotOptimize(sampler.samples(1'000'000'000, {0, kSamples}));
}

}  // namespace

BENCHMARK_CAPTURE(batches, plain, data::BatchOptions{})->Arg(1024)->Arg(4096);
BENCHMARK_CAPTURE(batches, documents, data::BatchOptions{.attend_across_documents = false, .restart_positions = true})
    ->Arg(1024)
    ->Arg(4096);
BENCHMARK_CAPTURE(batches, cp2, data::BatchOptions{.context = {.cp = 2}})->Arg(4096);
BENCHMARK(prefetched)->Arg(1024)->Arg(4096)->UseRealTime();
BENCHMARK(reads)->Arg(1024)->Arg(4096);
BENCHMARK(lookups)->Arg(7)->Arg(20)->Arg(50);
BENCHMARK(choosing_samples);
BENCHMARK(jump_to_step_1e9);
BENCHMARK(resume_at_step_1e9);
