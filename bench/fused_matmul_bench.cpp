// Products with epilogues (kernels/matmul/fused_matmul.hpp) next to ATen's products with separate passes, on one GPU.
//   trireme_fused_matmul_bench [TURNS]
// Microseconds, medians of interleaved turns, for the layers of GPT-2 124M, GPT-2 1558M and Llama 3.2 1B.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "trireme/kernels/matmul/fp8.hpp"
#include "trireme/kernels/matmul/fused_matmul.hpp"
#include "trireme/kernels/matmul/matmul.hpp"

namespace {

namespace kernels = trireme::kernels;

double microseconds_of(const std::function<void()>& f) {
  const c10::impl::VirtualGuardImpl device(at::kCUDA);
  const c10::Stream stream = device.getStream(device.getDevice());
  c10::Event begin(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT), end(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
  begin.record(stream);
  f();
  end.record(stream);
  end.synchronize();
  return 1e3 * begin.elapsedTime(end);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void compare(const char* what, double flops, int turns, const std::function<void()>& fused,
             const std::function<void()>& separate) {
  std::vector<double> ours, theirs;
  for (int i = -3; i < turns; ++i) {
    const double a = microseconds_of(fused), b = microseconds_of(separate);
    if (i >= 0) ours.push_back(a), theirs.push_back(b);
  }
  std::printf("  %-34s %8.1f us  %4.0f TFLOP/s   ATen %8.1f us  ratio %.3f\n", what, median(ours),
              flops / median(ours) * 1e-6, median(theirs), median(ours) / median(theirs));
  std::fflush(stdout);
}

void layer(const char* name, std::int64_t T, std::int64_t K, std::int64_t N, int turns) {
  const auto options = at::TensorOptions(at::kBFloat16).device(at::kCUDA);
  const auto random = [&](at::IntArrayRef sizes) { return at::randn(sizes, options) * 0.1; };
  const at::Tensor x = random({T, K}), w = random({N, K}), b = random({N}), dy = random({T, N}), r = random({T, N});
  const at::Tensor wd = random({K, N}), back = random({T, K});
  const at::Tensor dw = at::zeros({N, K}, options.dtype(at::kFloat));
  const double flops = 2.0 * static_cast<double>(T) * static_cast<double>(K) * static_cast<double>(N);
  std::printf("%s: T %ld, K %ld, N %ld\n", name, T, K, N);
  compare("product", flops, turns, [&] { kernels::linear_with_residual(x, w, {}, {}); }, [&] { at::mm(x, w.t()); });
  compare("bias", flops, turns, [&] { kernels::linear_with_residual(x, w, b, {}); }, [&] { at::addmm(b, x, w.t()); });
  compare(
      "bias and residual", flops, turns, [&] { kernels::linear_with_residual(x, w, b, r); },
      [&] { at::addmm(b, x, w.t()) + r; });
  compare(
      "bias and gelu", flops, turns, [&] { kernels::linear_gelu(x, w, b); },
      [&] { at::gelu(at::addmm(b, x, w.t()), "tanh"); });
  compare(
      "gelu gradient", flops, turns, [&] { kernels::gelu_gradient(back, wd, dy); },
      [&] { at::gelu_backward(at::mm(back, wd), dy, "tanh"); });
  compare(
      "dW", flops, turns, [&] { kernels::weight_gradient_out(dw, dy, x, false); },
      [&] { kernels::matmul_tn_out(dw, dy, x); });
  compare(
      "dW, added", flops, turns, [&] { kernels::weight_gradient_out(dw, dy, x, true); },
      [&] { kernels::add_matmul_tn_(dw, dy, x); });
}

/// Linear layers in fp8 with the rounding of their operands, next to bf16.
void fp8(const char* name, std::int64_t T, std::int64_t K, std::int64_t N, int turns) {
  using kernels::Fp8, kernels::Fp8Layout;
  const auto options = at::TensorOptions(at::kBFloat16).device(at::kCUDA);
  const auto random = [&](at::IntArrayRef sizes) { return at::randn(sizes, options) * 0.1; };
  const at::Tensor x = random({T, K}), w = random({N, K}), dy = random({T, N});
  const at::Tensor dw = at::zeros({N, K}, options.dtype(at::kFloat));
  const auto x8 = kernels::to_fp8(x, Fp8::e4m3, Fp8Layout::both), w8 = kernels::to_fp8(w, Fp8::e4m3, Fp8Layout::both),
             dy8 = kernels::to_fp8(dy, Fp8::e5m2, Fp8Layout::both);
  const double flops = 2.0 * static_cast<double>(T) * static_cast<double>(K) * static_cast<double>(N);
  std::printf("%s in fp8: T %ld, K %ld, N %ld\n", name, T, K, N);
  compare(
      "product", flops, turns,
      [&] { kernels::fp8_matmul_nt(x8.rows, x8.scale, w8.rows, w8.scale, at::kBFloat16, {}, true); },
      [&] { at::mm(x, w.t()); });
  compare(
      "dx", flops, turns,
      [&] { kernels::fp8_matmul_nt(dy8.rows, dy8.scale, w8.columns, w8.scale, at::kBFloat16, {}, false); },
      [&] { at::mm(dy, w); });
  compare(
      "dW", flops, turns, [&] { kernels::fp8_matmul_nt_out(dw, dy8.columns, dy8.scale, x8.columns, x8.scale, false); },
      [&] { kernels::matmul_tn_out(dw, dy, x); });
  compare("scale of x", 0, turns, [&] { kernels::fp8_scale(x, Fp8::e4m3); }, [&] { x.abs().max(); });
  compare(
      "rows of x", 0, turns, [&] { kernels::to_fp8(x, Fp8::e4m3, Fp8Layout::rows, {.scale = x8.scale}); },
      [&] { x.to(at::kFloat8_e4m3fn); });
  compare(
      "rows and columns of x", 0, turns, [&] { kernels::to_fp8(x, Fp8::e4m3, Fp8Layout::both, {.scale = x8.scale}); },
      [&] { x.to(at::kFloat8_e4m3fn).t().contiguous(); });
}

}  // namespace

int main(int argc, char** argv) {
  const int turns = argc > 1 ? std::atoi(argv[1]) : 20;
  if (!at::hasCUDA()) {
    std::puts("no GPU: nothing to measure");
    return 0;
  }
  layer("GPT-2 124M, up", 32768, 768, 3072, turns);
  layer("GPT-2 124M, down", 32768, 3072, 768, turns);
  layer("GPT-2 124M, qkv", 32768, 768, 2304, turns);
  layer("GPT-2 124M, out", 32768, 768, 768, turns);
  layer("GPT-2 1558M, up", 16384, 1600, 6400, turns);
  layer("GPT-2 1558M, down", 16384, 6400, 1600, turns);
  layer("GPT-2 1558M, qkv", 16384, 1600, 4800, turns);
  layer("Llama 3.2 1B, gate and up", 16384, 2048, 16384, turns);
  layer("Llama 3.2 1B, down", 16384, 8192, 2048, turns);
  fp8("Llama 3.2 1B, gate and up", 16384, 2048, 16384, turns);
  fp8("Llama 3.2 1B, down", 16384, 8192, 2048, turns);
  fp8("Llama 3.2 1B, qkv", 16384, 2048, 3072, turns);
  fp8("Llama 3.2 1B, out", 16384, 2048, 2048, turns);
}
