#pragma once
// Kernels that are recorded once and started together: a step of many small kernels is else bound by the host.
#include <cstdint>
#include <functional>
#include <memory>

#include <c10/core/Device.h>

namespace trireme::kernels {

class CudaGraph {
 public:
  CudaGraph();
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  /// Records what `f` enqueues on the current stream, which is not the default one (see use_own_stream). `f` may not
  /// wait for the device, and the memory that it reads and writes must remain where it is. Nothing is computed.
  /// What `f` allocates comes from a pool that all graphs share, so their results must be used before the next replay.
  void capture(const std::function<void()>& f);
  /// Enqueues it all on the current stream.
  void replay();
  /// Waits for the device and forgets what was recorded. Until then work outside of graphs cannot use their memory.
  void release();

  /// Memory of the pool that `f` used at most, on top of what was allocated before.
  std::int64_t peak_bytes() const { return peak_bytes_; }

 private:
  struct Captured;
  std::unique_ptr<Captured> captured_;
  std::int64_t peak_bytes_ = 0;
};

/// Waits for the device, unless it has been called before; from then on this thread enqueues on a stream of its own on
/// this GPU. Work on the default stream cannot be recorded.
void use_own_stream(at::Device device);

}  // namespace trireme::kernels
