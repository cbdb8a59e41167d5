#pragma once
// Shared by the kernels: argument checks, dtype dispatch, parallel loops over rows, and sums over rows that do not
// depend on the number of threads. Only for the .cpp files of this folder.
#include <cstdint>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/rows/dtype.hpp"
#include "trireme/kernels/rows/first_order.hpp"
#include "trireme/kernels/rows/lanes.hpp"
#include "trireme/kernels/rows/parallel.hpp"

namespace trireme::kernels::detail {

inline void require_dtype(const char* kernel, const at::Tensor& x) {
  require(x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble || is_reduced(x.scalar_type()), kernel,
          ": dtype ", x.scalar_type(), ": must be float, double, bfloat16 or half");
}

inline void require_contiguous(const char* kernel, const char* name, const at::Tensor& x) {
  require(x.is_contiguous(), kernel, ": ", name, " of sizes ", x.sizes(), " has strides ", x.strides(),
          ": must be contiguous");
}

inline void require_like(const char* kernel, const char* name, const at::Tensor& y, at::IntArrayRef sizes,
                         at::ScalarType dtype, at::Device device) {
  require(y.sizes() == sizes && y.scalar_type() == dtype && y.device() == device, kernel, ": ", name, " of sizes ",
          y.sizes(), ", ", y.scalar_type(), " on ", y.device(), ": must be of sizes ", sizes, ", ", dtype, " on ",
          device);
  require_contiguous(kernel, name, y);
}

/// Whether an autograd node must be created.
template <class... Tensors>
bool wants_grad(const Tensors&... x) {
  return at::GradMode::is_enabled() && ((x.defined() && x.requires_grad()) || ...);
}

/// Calls f(S{}) with the C++ type of the elements.
template <class F>
void by_dtype(const char* kernel, at::ScalarType dtype, const F& f) {
  switch (dtype) {
    case at::kFloat: return f(float{});
    case at::kDouble: return f(double{});
    case at::kBFloat16: return f(c10::BFloat16{});
    case at::kHalf: return f(c10::Half{});
    default: require(false, kernel, ": dtype ", dtype, " has no kernel");
  }
}

/// f(first, last) over parts of `rows` rows with `width` elements each, on all threads if there is enough work.
template <class F>
void over_rows(std::int64_t rows, std::int64_t width, const F& f) {
  constexpr std::int64_t kElements = 16'384;  // minimum per thread: 10 us of work or more
  const std::int64_t some = std::max<std::int64_t>(1, kElements / std::max<std::int64_t>(width, 1));
  over_parts((rows + some - 1) / some,
             [&](std::int64_t first, std::int64_t last) { f(first * some, std::min(rows, last * some)); });
}

// Note [Sums over rows]
// The gradient of a weight is a sum over all rows. To be bitwise equal for any number of threads, rows are summed
// sequentially in blocks of a fixed size, and then the block sums in order.
inline constexpr std::int64_t kBlockRows = 64;

/// add(first, last, sums) adds the rows of a block to `width` sums of type T that start at zero. Returns [width] with
/// `options`, rounded once.
template <class T, class F>
at::Tensor sum_over_rows(std::int64_t rows, std::int64_t width, const at::TensorOptions& options, const F& add) {
  const std::int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  const auto wide = options.dtype(c10::CppTypeToScalarType<T>::value);
  const at::Tensor sums_BW = at::empty({std::max<std::int64_t>(blocks, 1), width}, wide);
  T* const sums = sums_BW.mutable_data_ptr<T>();
  std::fill_n(sums, width, T{0});  // the sum of no rows
  over_rows(blocks, kBlockRows * width, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      T* const mine = sums + block * width;
      std::fill_n(mine, width, T{0});
      add(block * kBlockRows, std::min(rows, (block + 1) * kBlockRows), mine);
    }
  });
  over_rows(width, blocks, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = 1; block < blocks; ++block)
      for (std::int64_t i = first; i < last; ++i) sums[i] += sums[block * width + i];
  });
  const at::Tensor total_W = at::empty({width}, options);  // a view would keep all blocks alive
  total_W.copy_(sums_BW[0]);
  return total_W;
}

}  // namespace trireme::kernels::detail
