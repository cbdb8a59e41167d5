#include "trireme/kernels/block_squares.hpp"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>

#include "trireme/kernels/rows.hpp"

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

}  // namespace

void add_block_squares(const at::Tensor& x, std::int64_t phase, const at::Tensor& out) {
  constexpr const char* kName = "block_squares";
  require_dtype(kName, x);
  require_contiguous(kName, "x", x);
  const std::int64_t n = x.numel(), blocks = (phase + n + kSquaresBlock - 1) / kSquaresBlock;
  require(phase >= 0 && phase < kSquaresBlock, kName, ": phase ", phase, ": must be from 0 to ", kSquaresBlock - 1);
  require_like(kName, "out", out, {blocks}, at::kDouble, x.device());
  if (n == 0) return;
  if (!x.is_cpu()) {
    // The partial first block, whole blocks, the rest.
    std::int64_t begin = 0;
    const auto add = [&](std::int64_t count, std::int64_t in_each) {
      const std::int64_t first = (phase + begin) / kSquaresBlock, rows = count / in_each;
      out.narrow(0, first, rows)
          .add_(at::linalg_vector_norm(x.narrow(0, begin, count).view({rows, in_each}), 2, at::IntArrayRef{1}, false,
                                       at::kDouble)
                    .square());
      begin += count;
    };
    if (phase > 0) add(std::min(n, kSquaresBlock - phase), std::min(n, kSquaresBlock - phase));
    if (const std::int64_t whole = (n - begin) / kSquaresBlock * kSquaresBlock; whole > 0) add(whole, kSquaresBlock);
    if (begin < n) add(n - begin, n - begin);
    return;
  }
  double* const sums = out.mutable_data_ptr<double>();
  by_dtype(kName, x.scalar_type(), [&]<class S>(S) {
    const S* const data = x.const_data_ptr<S>();
    over_rows(blocks, kSquaresBlock, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t block = first; block < last; ++block) {
        const std::int64_t begin = std::max<std::int64_t>(0, block * kSquaresBlock - phase),
                           end = std::min(n, (block + 1) * kSquaresBlock - phase);
        sums[block] += squares(data + begin, end - begin);
      }
    });
  });
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
