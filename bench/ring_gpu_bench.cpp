// Ring attention over ranks on GPUs next to attention on one rank: bf16, causal, 32 heads of 128, 8 KV heads.
//   usage: trireme launch -n 2 -- trireme_ring_gpu_bench [TOKENS = 32768] [ROUNDS = 9]
// Ranks that share one GPU do the same work in turns: at best the ring then takes as long as one rank. Medians,
// alternating; the differences are relative to the largest element.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include "trireme/kernels/attention/attention.hpp"
#include "trireme/layout/split.hpp"
#include "trireme/parallel/context/ring_attention.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"
#include "trireme/runtime/rank/rank_main.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kHeads = 32, kKvHeads = 8, kHeadDim = 128;

void wait_for_device(const at::Tensor& x) { x.view(-1)[0].item(); }

/// The tokens of this rank.
at::Tensor part_of(const at::Tensor& x, const std::vector<Range>& tokens) {
  std::vector<at::Tensor> parts;
  for (const Range& range : tokens) parts.push_back(x.narrow(2, range.begin, range.size()));
  return at::cat(parts, 2);
}

struct Inputs {
  at::Tensor q, k, v, dout;

  static Inputs random(std::int64_t length, at::Device device) {
    const auto bf16 = at::TensorOptions(at::kBFloat16).device(device);
    return {at::randn({1, kHeads, length, kHeadDim}, bf16), at::randn({1, kKvHeads, length, kHeadDim}, bf16),
            at::randn({1, kKvHeads, length, kHeadDim}, bf16), at::randn({1, kHeads, length, kHeadDim}, bf16)};
  }
  Inputs part(const std::vector<Range>& tokens) const {
    return {part_of(q, tokens), part_of(k, tokens), part_of(v, tokens), part_of(dout, tokens)};
  }
};

struct Run {
  at::Tensor out, dk;
  double seconds = 0;
};

template <class Attention>
Run forward_and_backward(const Inputs& in, Attention attention) {
  const auto leaf = [](const at::Tensor& x) { return x.detach().set_requires_grad(true); };
  const at::Tensor q = leaf(in.q), k = leaf(in.k), v = leaf(in.v);
  wait_for_device(in.q);
  const auto begin = std::chrono::steady_clock::now();
  const at::Tensor out = attention(q, k, v);
  torch::autograd::backward({out}, {in.dout});
  wait_for_device(q.grad());
  wait_for_device(k.grad());
  return {out.detach(), k.grad(), std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void measure(const ParallelContext& context, std::int64_t length, int rounds) {
  Group& cp = context.cp_pg();
  at::manual_seed(0);  // the same whole samples on every rank
  const Inputs whole = Inputs::random(length, context.device());
  const std::vector<Range> tokens = tokens_over_cp(length, cp.size(), cp.rank());
  const Inputs part = whole.part(tokens);
  const auto on_one_rank = [&] {
    return forward_and_backward(
        whole, [](const auto& q, const auto& k, const auto& v) { return kernels::attention(q, k, v); });
  };
  const auto on_the_ring = [&] {
    cp.barrier().wait();
    return forward_and_backward(part, [&](const auto& q, const auto& k, const auto& v) {
      return ring_attention(q, k, v, {.whole_length = length}, cp);
    });
  };
  const Run one = on_one_rank(), ring = on_the_ring();
  const double of_out = difference(ring.out, part_of(one.out, tokens));
  const double of_dk = difference(ring.dk, part_of(one.dk, tokens));
  std::vector<double> alone, over_ranks;
  for (int i = 0; i < rounds; ++i) {
    over_ranks.push_back(on_the_ring().seconds);
    // The others sleep: a rank that waits in a barrier keeps a shared GPU busy.
    if (cp.rank() == 0)
      alone.push_back(on_one_rank().seconds);
    else
      std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  if (cp.rank() == 0)
    std::printf(
        "%lld tokens, forward and backward: one rank %.1f ms, ring of %d %.1f ms, ratio %.2f; results differ by %.1e, "
        "dk by %.1e\n",
        static_cast<long long>(length), 1e3 * median(alone), cp.size(), 1e3 * median(over_ranks),
        median(over_ranks) / median(alone), of_out, of_dk);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  using namespace trireme;
  const std::int64_t length = argc > 1 ? std::atoll(argv[1]) : 32768;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 9;
  const RankMain how{.words = {argv, argv + argc}, .variables = process_variables()};
  return rank_main(how, [&](const Environment& env) {
    const ParallelContext context({.context_parallel_size = env.world_size}, env, how.variables, {.share_gpu = true});
    measure(context, length, rounds);
  });
}
