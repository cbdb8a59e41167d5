#include "trireme/kernels/block_squares.hpp"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>

#include "trireme/kernels/rows.hpp"

namespace trireme::kernels {
namespace {

using namespace detail;

constexpr int kWidth = 8;  // independent sums, more than an adder is deep
typedef float Floats __attribute__((vector_size(kWidth * sizeof(float))));
typedef double Doubles __attribute__((vector_size(kWidth * sizeof(double))));

/// By reference: a vector wider than the CPU's registers has no way to be returned that all compilers agree on.
template <class S>
void load_doubles(const S* x, Doubles& values) {
  if constexpr (std::is_same_v<S, float>) {
    Floats narrow;
    std::memcpy(&narrow, x, sizeof narrow);
    values = __builtin_convertvector(narrow, Doubles);
  } else {
    for (int i = 0; i < kWidth; ++i) values[i] = static_cast<double>(x[i]);
  }
}

template <class S>
double squares(const S* x, std::int64_t n) {
  Doubles sums{};
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    Doubles values{};
    load_doubles(x + i, values);
    sums += values * values;
  }
  double total = 0;
  for (int k = 0; k < kWidth; ++k) total += sums[k];
  for (; i < n; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
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
    // The first block as far as it is there, whole blocks, the rest.
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
