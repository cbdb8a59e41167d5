#include "trireme/kernels/rows/parallel.hpp"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>

// A false positive of g++ 13, in the moves of TensorIterator's small vectors.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace trireme::kernels {

// Not at::parallel_for: it is a template, and in a file compiled without -fopenmp it is silently a plain loop; with it,
// our programs would link a second OpenMP library in addition to the one inside the wheel. A TensorIterator runs its
// loop on libtorch's threads from inside libtorch: one byte represents a part, and its address gives the index.
void over_parts(std::int64_t count, c10::function_ref<void(std::int64_t first, std::int64_t last)> f) {
  if (count == 0) return;
  if (count == 1 || at::get_num_threads() == 1) return f(0, count);
  const at::Tensor parts = at::empty({count}, at::kByte);
  const char* const begin = static_cast<const char*>(parts.const_data_ptr());
  at::TensorIteratorConfig().check_all_same_dtype(false).resize_outputs(false).add_output(parts).build().for_each(
      [&](char** data, const std::int64_t* strides, std::int64_t n, std::int64_t outer) {
        for (std::int64_t i = 0; i < outer; ++i) {
          const std::int64_t first = data[0] + i * strides[1] - begin;
          f(first, first + n);
        }
      },
      /*grain_size=*/1);
}

}  // namespace trireme::kernels
