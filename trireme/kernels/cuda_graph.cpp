#include "trireme/kernels/cuda_graph.hpp"

#include <memory>
#include <mutex>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include "trireme/base/error.hpp"

namespace trireme::kernels {
namespace {

/// One pool for all graphs that exist: they are replayed one after the other, and what one leaves there is read before
/// the next. libtorch drops a pool with its last graph, so later graphs get another one.
struct Pool {
  const at::cuda::MempoolId_t id = at::cuda::graph_pool_handle();
};
std::shared_ptr<Pool> shared_pool() {
  static std::mutex mutex;
  static std::weak_ptr<Pool> current;
  const std::scoped_lock lock(mutex);
  std::shared_ptr<Pool> pool = current.lock();
  if (!pool) current = pool = std::make_shared<Pool>();
  return pool;
}

std::int64_t allocated_peak(c10::DeviceIndex device) {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(device)
      .allocated_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)]
      .peak;
}

}  // namespace

struct CudaGraph::Captured {
  std::shared_ptr<Pool> pool = shared_pool();
  at::cuda::CUDAGraph graph;
};

CudaGraph::CudaGraph() = default;
CudaGraph::~CudaGraph() = default;

void CudaGraph::capture(const std::function<void()>& f) {
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  require(stream != c10::cuda::getDefaultCUDAStream(), "work on the default stream cannot become a CUDA graph");
  c10::cuda::device_synchronize();
  // What eager steps have left in the cache is of no use to the pool.
  c10::cuda::CUDACachingAllocator::emptyCache();
  c10::cuda::CUDACachingAllocator::resetPeakStats(stream.device_index());
  const std::int64_t before = allocated_peak(stream.device_index());
  captured_ = std::make_unique<Captured>();
  // Other threads (a watchdog of NCCL, a save in the background) may use CUDA meanwhile.
  captured_->graph.capture_begin(captured_->pool->id, cudaStreamCaptureModeThreadLocal);
  try {
    f();
  } catch (...) {
    try {
      captured_->graph.capture_end();
    } catch (const std::exception&) {
      // The first reason counts.
    }
    captured_.reset();
    throw;
  }
  captured_->graph.capture_end();
  peak_bytes_ = allocated_peak(stream.device_index()) - before;
}

void CudaGraph::replay() {
  require(captured_ != nullptr, "replay() of a CUDA graph without a capture");
  captured_->graph.replay();
}

void CudaGraph::release() {
  c10::cuda::device_synchronize();  // it may be running
  captured_.reset();
}

void use_own_stream(at::Device device) {
  if (c10::cuda::getCurrentCUDAStream(device.index()) != c10::cuda::getDefaultCUDAStream(device.index())) return;
  c10::cuda::device_synchronize();
  // The streams of saves and of communication are of the other pool: none of them is this one.
  c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index()));
}

}  // namespace trireme::kernels
