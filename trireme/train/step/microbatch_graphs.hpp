#pragma once
// Forward and backward of a microbatch as CUDA graphs: recorded once for each shape, then replayed with new tokens.
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "trireme/config/schema/config.hpp"
#include "trireme/kernels/cuda_graph.hpp"
#include "trireme/nn/step_keys.hpp"
#include "trireme/train/step/batches.hpp"

namespace trireme {

/// Whether a run uses graphs, by cuda.graphs. ConfigError for "on" where they cannot be used, with the reason.
bool uses_graphs(const Config& config, at::Device device, bool own_family);

class MicrobatchGraphs {
 public:
  /// Forward of a microbatch and backward with this gradient of its loss, which is returned. The gradients of the
  /// parameters are in memory that remains where it is. Auxiliary losses go to microbatch.context.auxiliary_loss.
  using Work = std::function<at::Tensor(const Microbatch& microbatch, const at::Tensor& loss_gradient)>;

  /// `after_replay` tells those who watch the calls of a microbatch that they have been enqueued as a graph.
  MicrobatchGraphs(Work work, std::function<void()> after_replay, at::Device device)
      : work_(std::move(work)), after_replay_(std::move(after_replay)), device_(device) {}

  struct Done {
    at::Tensor loss;  // valid until the next run()
    bool replayed;    // nothing ran on the host: no hook of a parameter was called
  };
  /// In the first steps with a shape its microbatches run as they are, so that everything is loaded and chosen.
  /// `first`: of its step; the others add to the gradients.
  Done run(const Microbatch& microbatch, bool first, const at::Tensor& loss_gradient);

  /// Gives back the memory of the graphs, which nothing else can use: ahead of a step that runs as it is. Shapes are
  /// recorded anew when they come again.
  void release();

  /// Memory that replays since the last call have used, beside what counts as allocated.
  std::int64_t take_hidden_bytes() { return std::exchange(hidden_bytes_, 0); }

 private:
  struct Shape {
    std::int64_t batch, length;
    double auxiliary_factor;  // follows from the length
    bool first, restarts;     // of its step; positions restart with each document
    auto operator<=>(const Shape&) const = default;
  };
  struct Recorded {
    std::int64_t steps = 0, last_step = -1;  // with this shape, so far
    Microbatch microbatch;
    at::Tensor loss_gradient, loss, auxiliary;
    std::shared_ptr<StepKeys> keys;
    std::unique_ptr<kernels::CudaGraph> graph;
  };
  void record(Recorded& it, const Microbatch& microbatch, const at::Tensor& loss_gradient);

  const Work work_;
  const std::function<void()> after_replay_;
  const at::Device device_;
  std::map<Shape, Recorded> known_;
  bool has_documents_ = false;
  std::int64_t hidden_bytes_ = 0, recorded_in_ = -1;  // the step of the last recording
};

}  // namespace trireme
