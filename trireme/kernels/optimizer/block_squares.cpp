#include "trireme/kernels/optimizer/block_squares.hpp"

#include <ATen/ops/scalar_tensor.h>

#include "trireme/kernels/optimizer/block_squares_cuda.hpp"
#include "trireme/kernels/rows/rows.hpp"

namespace trireme::kernels {
namespace {

using namespace detail;

constexpr int kSums = 4, kWidth = 2 * kSums;  // independent sums in pairs, to cover the latency of additions
typedef double Pair __attribute__((vector_size(2 * sizeof(double))));

template <class S>
double squares(const S* x, std::int64_t n) {
  const auto at = [x](std::int64_t i) { return static_cast<double>(x[i]); };
  Pair sums[kSums] = {};
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth)
#pragma GCC unroll 4
    for (int k = 0; k < kSums; ++k) {
      const Pair pair{at(i + 2 * k), at(i + 2 * k + 1)};
      sums[k] += pair * pair;
    }
  double total = 0;
  for (const Pair& sum : sums) total += sum[0] + sum[1];
  for (; i < n; ++i) total += at(i) * at(i);
  return total;
}

constexpr const char* kName = "block_squares";

void check_run(const SquaresRun& run, const at::Tensor& out) {
  require_dtype(kName, run.x);
  require_contiguous(kName, "x", run.x);
  require(run.x.device() == out.device(), kName, ": x on ", run.x.device(), ", out on ", out.device());
  require(run.phase >= 0 && run.phase < kSquaresBlock, kName, ": phase ", run.phase, ": must be from 0 to ",
          kSquaresBlock - 1);
  const std::int64_t end = run.block + (run.phase + run.x.numel() + kSquaresBlock - 1) / kSquaresBlock;
  require(run.block >= 0 && end <= out.size(0), kName, ": blocks ", run.block, " to ", end - 1, " of ", out.size(0));
}

void add_run(const SquaresRun& run, double* out) {
  const std::int64_t n = run.x.numel(), blocks = (run.phase + n + kSquaresBlock - 1) / kSquaresBlock;
  if (n == 0) return;
  by_dtype(kName, run.x.scalar_type(), [&]<class S>(S) {
    const S* const data = run.x.const_data_ptr<S>();
    over_rows(blocks, kSquaresBlock, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t block = first; block < last; ++block) {
        const std::int64_t begin = std::max<std::int64_t>(0, block * kSquaresBlock - run.phase),
                           end = std::min(n, (block + 1) * kSquaresBlock - run.phase);
        out[run.block + block] += squares(data + begin, end - begin);
      }
    });
  });
}

}  // namespace

void add_block_squares(std::span<const SquaresRun> runs, const at::Tensor& out) {
  require_like(kName, "out", out, out.sizes(), at::kDouble, out.device());
  for (const SquaresRun& run : runs) check_run(run, out);
  if (!out.is_cpu()) return block_squares_on_cuda(runs, out);
  for (const SquaresRun& run : runs) add_run(run, out.mutable_data_ptr<double>());
}

at::Tensor sum_in_order(const at::Tensor& x) {
  require(x.scalar_type() == at::kDouble && x.dim() == 1 && x.is_contiguous(), "sum_in_order: ", x.scalar_type(),
          " of ", x.sizes(), ": must be flat and double");
  if (!x.is_cpu()) return x.sum();
  double total = 0;
  const double* const data = x.const_data_ptr<double>();
  for (std::int64_t i = 0; i < x.numel(); ++i) total += data[i];
  return at::scalar_tensor(total, x.options());
}

}  // namespace trireme::kernels
