// block_squares.cpp as a CUDA kernel: a thread block per block of elements, many runs in one launch.
#include <algorithm>

#include "trireme/kernels/optimizer/block_squares_cuda.hpp"
#include "trireme/kernels/rows/cuda_vectors.cuh"
#include "trireme/kernels/rows/on_cuda.hpp"

namespace trireme::kernels::detail {
namespace {

constexpr int kThreads = 128, kMostRuns = 64;

/// The runs of a launch, as an argument of the kernel: no copy to the device is waited for.
struct Runs {
  const void* x[kMostRuns];
  std::int64_t numel[kMostRuns], phase[kMostRuns], block[kMostRuns];
  std::int64_t end[kMostRuns];  // thread blocks of this run and those before
  int count = 0;
};

template <class S>
__global__ void add_squares(const Runs runs, double* out) {
  __shared__ double shared[kThreads / kWarp];
  int r = 0;
  while (blockIdx.x >= runs.end[r]) ++r;
  const std::int64_t k = blockIdx.x - (r > 0 ? runs.end[r - 1] : 0);
  const std::int64_t begin = max(std::int64_t{0}, k * kSquaresBlock - runs.phase[r]),
                     end = min(runs.numel[r], (k + 1) * kSquaresBlock - runs.phase[r]);
  const S* const x = static_cast<const S*>(runs.x[r]);
  double sum[1] = {0};
#pragma unroll
  for (int i = 0; i < kSquaresBlock / kThreads; ++i) {
    const std::int64_t at = begin + i * kThreads + threadIdx.x;
    const double v = at < end ? static_cast<double>(x[at]) : 0.0;
    sum[0] += v * v;
  }
  block_sums(sum, shared);
  if (threadIdx.x == 0) out[runs.block[r] + k] += sum[0];
}

std::int64_t blocks_of(const SquaresRun& run) {
  return (run.phase + run.x.numel() + kSquaresBlock - 1) / kSquaresBlock;
}

}  // namespace

void block_squares_on_cuda(std::span<const SquaresRun> runs, const at::Tensor& out) {
  const c10::cuda::CUDAGuard guard(out.device());
  Runs next;
  at::ScalarType dtype = at::kFloat;
  const auto launch = [&] {
    if (next.count == 0) return;
    by_float_dtype("block_squares", dtype, [&]<class S>(S) {
      add_squares<S>
          <<<static_cast<unsigned>(next.end[next.count - 1]), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
              next, out.mutable_data_ptr<double>());
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
    next.count = 0;
  };
  for (const SquaresRun& run : runs) {
    if (run.x.numel() == 0) continue;
    // Runs that share a block follow each other, so that sums are always added in the same order.
    bool shares = false;
    for (int r = 0; r < next.count; ++r) {
      const std::int64_t blocks = next.end[r] - (r > 0 ? next.end[r - 1] : 0);
      shares |= run.block < next.block[r] + blocks && next.block[r] < run.block + blocks_of(run);
    }
    if (shares || next.count == kMostRuns || run.x.scalar_type() != dtype) launch();
    dtype = run.x.scalar_type();
    const int r = next.count++;
    next.x[r] = run.x.const_data_ptr();
    next.numel[r] = run.x.numel();
    next.phase[r] = run.phase;
    next.block[r] = run.block;
    next.end[r] = blocks_of(run) + (r > 0 ? next.end[r - 1] : 0);
  }
  launch();
}

}  // namespace trireme::kernels::detail
