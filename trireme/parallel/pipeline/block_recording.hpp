#pragma once
// The DAG of a model of blocks, written down by running its forward without tensors.
#include <compare>
#include <memory>
#include <string>
#include <vector>

#include "trireme/parallel/pipeline/pipeline_block.hpp"

namespace trireme {

/// An output of a node.
struct RecordedValue {
  int node = 0;
  int output = 0;
  auto operator<=>(const RecordedValue&) const = default;
};

/// A call of a block, or an entry of the batch.
struct RecordedNode {
  std::shared_ptr<PipelineBlockImpl> block;  // nullptr: an entry of the batch
  std::string key;                           // of the entry
  std::vector<RecordedValue> inputs{};       // in the order of the block's keys
};

struct Recording {
  std::vector<RecordedNode> nodes;  // in the order of the calls, so in topological order; the entries first
  RecordedValue loss;

  /// One line for each node, and one for the loss.
  std::vector<std::string> lines() const;
};

/// While it lives, blocks of `p2p` that are called compute nothing and communicate nothing.
class BlockRecorder {
 public:
  explicit BlockRecorder(PipelineP2P& p2p);
  ~BlockRecorder();
  BlockRecorder(const BlockRecorder&) = delete;
  BlockRecorder& operator=(const BlockRecorder&) = delete;

  /// The batch that the forward gets; its entries are pointers to where `batch` says that they are.
  TensorDict record_batch(const TensorDict& batch);
  /// For blocks: what their call returns.
  TensorDict record_call(const std::shared_ptr<PipelineBlockImpl>& block, const TensorDict& inputs);
  Recording finish(const TensorOrPointer& loss) &&;

 private:
  TensorOrPointer value(int node, int output, int pp_rank) const;

  PipelineP2P& p2p_;
  std::uint64_t number_;
  Recording recording_{};
};

/// Collective over the pipeline: CommError that names the first line that differs between ranks.
void check_same_lines(const std::vector<std::string>& lines, PipelineP2P& p2p);

}  // namespace trireme
