// Compares our kernels, forward and backward, with the ATen operators that eager PyTorch would run, in the same
// process.
//   trireme_kernels_bench [TURNS [WHAT]]      WHAT: part of a comparison's name
// f32, T = 1024 tokens, D = 512, F = 2048, V = 8192. The turns are interleaved and medians compared.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include "trireme/kernels/activation/gelu.hpp"
#include "trireme/kernels/activation/swiglu.hpp"
#include "trireme/kernels/attention/rope.hpp"
#include "trireme/kernels/dropout/dropout.hpp"
#include "trireme/kernels/loss/cross_entropy.hpp"
#include "trireme/kernels/matmul/matmul.hpp"
#include "trireme/kernels/norm/layer_norm.hpp"
#include "trireme/kernels/norm/rms_norm.hpp"

namespace {

namespace kernels = trireme::kernels;
using Clock = std::chrono::steady_clock;
using Tensors = std::vector<at::Tensor>;
using Map = std::function<at::Tensor(const Tensors&)>;

constexpr std::int64_t T = 1024, D = 512, F = 2048, V = 8192, H = 8, E = 64;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Comparison {
  const char* what;
  Map ours, theirs;
  Tensors inputs;
};

double seconds_of(const Map& map, const Tensors& inputs, const Tensors& differentiated, const at::Tensor& dy) {
  const auto start = Clock::now();
  const at::Tensor y = map(inputs);
  torch::autograd::grad({y}, differentiated, {dy});
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void compare(const Comparison& c, int turns, int threads) {
  at::set_num_threads(threads);
  Tensors differentiated;
  for (const at::Tensor& x : c.inputs)
    if (x.requires_grad()) differentiated.push_back(x);
  const at::Tensor dy = at::randn_like(c.ours(c.inputs).detach());
  std::vector<double> ours, theirs, ratios;
  for (int i = -1; i < turns; ++i) {
    // The order alternates: the second one finds the caches warm.
    double a = 0, b = 0;
    if (i % 2 == 0) a = seconds_of(c.ours, c.inputs, differentiated, dy);
    b = seconds_of(c.theirs, c.inputs, differentiated, dy);
    if (i % 2 != 0) a = seconds_of(c.ours, c.inputs, differentiated, dy);
    if (i < 0) continue;
    ours.push_back(a);
    theirs.push_back(b);
    ratios.push_back(a / b);
  }
  std::printf("%-34s %d thread%s  ours %8.2f ms  ATen %8.2f ms  ratio %.3f\n", c.what, threads,
              threads == 1 ? " " : "s", median(ours) * 1e3, median(theirs) * 1e3, median(ratios));
  std::fflush(stdout);
}

at::Tensor leaf(at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(); }

at::Tensor rotate_half(const at::Tensor& x) {
  const std::int64_t h = x.size(-1) / 2;
  return at::cat({-x.narrow(-1, h, h), x.narrow(-1, 0, h)}, -1);
}

std::vector<Comparison> comparisons() {
  const at::Tensor angle = at::randn({T, E / 2}), cos = angle.cos(), sin = angle.sin();
  const at::Tensor cos_TE = at::cat({cos, cos}, 1).unsqueeze(1), sin_TE = at::cat({sin, sin}, 1).unsqueeze(1);
  const at::Tensor targets = at::randint(V, {T}, at::kLong), rows = at::arange(T, at::kLong);
  constexpr auto key = kernels::dropout_key(1, "bench");
  return {
      {"linear T x D -> F, bias",
       [](auto& in) { return kernels::linear(in[0], in[1], in[2]); },
       [](auto& in) { return at::linear(in[0], in[1], in[2]); },
       {leaf({T, D}), leaf({F, D}), leaf({F})}},
      {"linear T x F -> D",
       [](auto& in) { return kernels::linear(in[0], in[1]); },
       [](auto& in) { return at::linear(in[0], in[1]); },
       {leaf({T, F}), leaf({D, F})}},
      {"rms_norm T x D",
       [](auto& in) { return kernels::rms_norm(in[0], in[1], 1e-5); },
       [](auto& in) { return at::rms_norm(in[0], {D}, in[1], 1e-5); },
       {leaf({T, D}), leaf({D})}},
      {"layer_norm T x D",
       [](auto& in) { return kernels::layer_norm(in[0], in[1], in[2], 1e-5); },
       [](auto& in) { return at::layer_norm(in[0], {D}, in[1], in[2], 1e-5); },
       {leaf({T, D}), leaf({D}), leaf({D})}},
      {"rope T x 8 x 64",
       [=](auto& in) { return kernels::rope(in[0], cos, sin, H); },
       [=](auto& in) { return in[0] * cos_TE + rotate_half(in[0]) * sin_TE; },
       {leaf({T, H, E})}},
      {"swiglu T x 2F",
       [](auto& in) { return kernels::swiglu(in[0]); },
       [](auto& in) { return at::silu(in[0].narrow(1, 0, F)) * in[0].narrow(1, F, F); },
       {leaf({T, 2 * F})}},
      {"gelu T x F",
       [](auto& in) { return kernels::gelu(in[0], false); },
       [](auto& in) { return at::gelu(in[0]); },
       {leaf({T, F})}},
      {"gelu T x F, tanh form",
       [](auto& in) { return kernels::gelu(in[0], true); },
       [](auto& in) { return at::gelu(in[0], "tanh"); },
       {leaf({T, F})}},
      {"cross_entropy T x V",
       [=](auto& in) { return kernels::cross_entropy(in[0], targets); },
       [=](auto& in) { return at::nll_loss(at::log_softmax(in[0], 1), targets, {}, at::Reduction::None); },
       {leaf({T, V})}},
      {"dropout T x D, p = 0.1",
       [=](auto& in) { return kernels::dropout(in[0], 0.1, key, {rows, D}); },
       [](auto& in) { return at::dropout(in[0], 0.1, true); },
       {leaf({T, D})}},
  };
}

}  // namespace

int main(int argc, char** argv) {
  const int turns = argc > 1 ? std::atoi(argv[1]) : 15;
  const std::string what = argc > 2 ? argv[2] : "";
  for (const Comparison& c : comparisons())
    for (const int threads : {1, 2})
      if (std::string(c.what).find(what) != std::string::npos) compare(c, turns, threads);
}
