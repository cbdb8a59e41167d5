#pragma once
// The ranks of a pipeline, as the blocks of a model see them.
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/comm/mesh.hpp"
#include "trireme/parallel/pipeline/tensor_dict.hpp"

namespace trireme {

class BlockRecorder;

/// All blocks of a model and its engine share one; it must outlive them.
class PipelineP2P {
 public:
  /// `device`: of the tensors and parameters of this rank.
  PipelineP2P(Mesh& mesh, at::Device device);
  PipelineP2P(const PipelineP2P&) = delete;
  PipelineP2P& operator=(const PipelineP2P&) = delete;

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  Mesh& mesh() const { return mesh_; }
  at::Device device() const { return device_; }

  // Messages between two ranks, and collective calls over the pipeline. `what` is the same text at both ends of a
  // message; the receiver throws a CommError that names it if the sender is elsewhere in the program.

  /// Returns when it has been sent. The receiver gets the values, not the graph.
  void send(const at::Tensor& x, int to, const std::string& what);
  at::Tensor receive(int from, const std::string& what);
  /// The same count on all ranks. By rank.
  std::vector<std::vector<std::int64_t>> gather(const std::vector<std::int64_t>& numbers);
  /// By rank.
  std::vector<std::string> gather(const std::string& words);

  /// Blocks that are called now are recorded; nullptr: they are executed.
  BlockRecorder* recorder() const { return recorder_; }

 private:
  friend class BlockRecorder;

  Mesh& mesh_;
  Group& group_;
  const at::Device device_;
  BlockRecorder* recorder_ = nullptr;
  std::uint64_t recordings_ = 0;
};

/// Where a rank says that a tensor is: on itself, or on the rank of its pointer.
inline constexpr std::int64_t kHere = -1;
std::int64_t place_of(const TensorOrPointer& value);

/// The rank that has the tensor. ConfigError that begins with `what`, unless that is exactly one, and all others point
/// to it. `places`: place_of on each rank.
int owner_of(const std::string& what, const std::vector<std::int64_t>& places);

}  // namespace trireme
