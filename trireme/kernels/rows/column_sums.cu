// The sums of the columns of a matrix: gradients of biases.
#include "trireme/kernels/rows/cuda_vectors.cuh"
#include "trireme/kernels/rows/on_cuda.hpp"

namespace trireme::kernels::detail {
namespace {

constexpr int kWarps = 8;
constexpr std::int64_t kBlocks = 1056;  // about; fixed, so that the order of a sum does not depend on the GPU

/// A thread adds 16 bytes of every (gridDim.y * kWarps)-th row: partial [gridDim.y][columns].
template <class S, class W = WideOf<S>>
__global__ void sum_columns(const S* x, std::int64_t rows, std::int64_t columns, W* partial) {
  constexpr int kSize = Vector<S>::kSize;
  __shared__ W shared[kWarps][kWarp * kSize];
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x) * kSize;
  W sums[kSize] = {};
  if (column < columns) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kWarps;
#pragma unroll 4
    for (std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kWarps + threadIdx.y; row < rows; row += step) {
      const Vector<S> v = load_vector(x + row * columns + column);
#pragma unroll
      for (int j = 0; j < kSize; ++j) sums[j] += static_cast<W>(v.at[j]);
    }
  }
#pragma unroll
  for (int j = 0; j < kSize; ++j) shared[threadIdx.y][threadIdx.x * kSize + j] = sums[j];
  __syncthreads();
  for (int i = threadIdx.y * kWarp + threadIdx.x; i < kWarp * kSize; i += kWarps * kWarp) {
    const std::int64_t to = static_cast<std::int64_t>(blockIdx.x) * kWarp * kSize + i;
    if (to >= columns) continue;
    W sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += shared[w][i];
    partial[static_cast<std::int64_t>(blockIdx.y) * columns + to] = sum;
  }
}

}  // namespace

bool has_column_sums_on_cuda(const at::Tensor& x) {
  return x.is_cuda() && x.dim() == 2 && x.numel() > 0 && x.is_contiguous() && has_vectors(x, x.size(1));
}

void column_sums_on_cuda(const at::Tensor& out, const at::Tensor& x, bool add) {
  const std::int64_t rows = x.size(0), columns = x.size(1);
  const c10::cuda::CUDAGuard guard(x.device());
  by_float_dtype("column sums", x.scalar_type(), [&]<class S>(S) {
    using W = WideOf<S>;
    const std::int64_t across = (columns + kWarp * Vector<S>::kSize - 1) / (kWarp * Vector<S>::kSize);
    const std::int64_t down = std::min((rows + kWarps - 1) / kWarps, std::max<std::int64_t>(1, kBlocks / across));
    const at::Tensor partial = at::empty({down, columns}, x.options().dtype(c10::CppTypeToScalarType<W>::value));
    sum_columns<S>
        <<<dim3(static_cast<unsigned>(across), static_cast<unsigned>(down)), dim3(kWarp, kWarps), 0,
           c10::cuda::getCurrentCUDAStream()>>>(x.const_data_ptr<S>(), rows, columns, partial.mutable_data_ptr<W>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    sum_partial_rows_into<W>(out, partial, add);
  });
}

}  // namespace trireme::kernels::detail
