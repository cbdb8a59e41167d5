// Ring attention on CPU ranks as threads: memory per rank for growing samples, and how much of its communication is
// hidden behind computation on a throttled link.
//   usage: trireme_ring_bench [memory | overlap] [ROUNDS]
// Hidden = 1 - (time over the slow link - time over a free one) / time that the link is busy; medians, alternating.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/autograd.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/parallel/context/ring_attention.hpp"
#include "trireme/runtime/memory/counted_memory.hpp"
#include "trireme/testing/throttled_group.hpp"

namespace trireme {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// q, k and v of one rank.
struct Heads {
  at::Tensor q, k, v;
  Heads(std::int64_t heads, std::int64_t length, std::int64_t dim)
      : q(at::rand({1, heads, length, dim}).set_requires_grad(true)),
        k(at::rand({1, heads, length, dim}).set_requires_grad(true)),
        v(at::rand({1, heads, length, dim}).set_requires_grad(true)) {}
  void forward_and_backward(std::int64_t whole_length, Group& group) const {
    const at::Tensor out = ring_attention(q, k, v, {.whole_length = whole_length}, group);
    torch::autograd::backward({out}, {at::ones_like(out)});
  }
};

void measure_memory() {
  std::printf("attention of one sample, 1 head of 32, forward and backward: peak of a rank in MiB, and seconds\n");
  std::printf("%8s", "tokens");
  for (const int cp : {1, 2, 4}) std::printf("       cp %d", cp);
  std::printf("\n");
  for (const std::int64_t length : {4096, 8192, 16384, 32768}) {
    std::printf("%8lld", static_cast<long long>(length));
    for (const int cp : {1, 2, 4}) {
      const CountedMemory memory;
      const auto begin = std::chrono::steady_clock::now();
      run_ranks(cp, [&](Group& group) { Heads(1, length / cp, 32).forward_and_backward(length, group); });
      std::printf(" %6.1f %4.1f", static_cast<double>(memory.peak()) / cp / (1 << 20), seconds_since(begin));
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void measure_overlap(int rounds) {
  constexpr std::int64_t length = 8192;
  for (const int ranks : {2, 4})
    run_ranks(
        ranks,
        [&](World& world) {
          std::vector<int> all;
          for (int r = 0; r < ranks; ++r) all.push_back(r);
          const auto free = world.make_group("free", all), inner = world.make_group("inner", all);
          const Heads heads(2, length / ranks, 32);
          const auto timed = [&](Group& group) {
            free->barrier().wait();
            const auto begin = std::chrono::steady_clock::now();
            heads.forward_and_backward(length, group);
            free->barrier().wait();
            return seconds_since(begin);
          };
          timed(*free);
          const std::int64_t before = free->traffic().bytes;
          const double alone = timed(*free), bytes = static_cast<double>(free->traffic().bytes - before);
          // All ranks must choose the same link: busy for half of the time.
          const at::Tensor slowest =
              free->all_reduce(at::scalar_tensor(alone, at::kDouble).view({1}), Reduce::max).wait();
          const double busy = slowest.item<double>() / 2;
          ThrottledGroup slow(*inner, {.bytes_per_s = bytes / busy, .latency_s = 1e-3});
          std::vector<double> with, without;
          for (int i = 0; i < rounds; ++i) {
            without.push_back(timed(*free));
            with.push_back(timed(slow));
          }
          without.push_back(timed(*free));
          const double exposed = median(with) - median(without);
          if (world.rank() == 0)
            std::printf(
                "%d ranks, %lld tokens: %.3f s free, %.3f s over a link that is busy for %.3f s: %.1f %% hidden\n",
                ranks, static_cast<long long>(length), median(without), median(with), busy, 100 * (1 - exposed / busy));
        },
        {.check = CheckMode::off});
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const std::string what = argc > 1 ? argv[1] : "";
  if (what != "overlap") trireme::measure_memory();
  if (what != "memory") trireme::measure_overlap(argc > 2 ? std::atoi(argv[2]) : 5);
}
