#pragma once
// Token embeddings with the vocabulary sharded over tp, and learned position embeddings.
#include "trireme/nn/layer.hpp"

namespace trireme {

/// Of an embedding that is also the head, when these are on two pipeline chunks.
struct VocabularyTie {
  std::optional<TiedInfo> info = {};
  bool is_copy = false;  // the head's
};

// V vocabulary entries, v = ceil(V / tp) and padding (Note [Vocabulary rows]); T tokens, t = T / tp; D features
/// y = W[ids] with the rows of W sharded over tp; a rank contributes zeros for ids outside its shard.
///   forward    y_TD = sum_r W_vD[ids]       all_reduce, or reduce_scatter to y_tD
///   backward   dW_vD[ids] += dy_TD          sequence parallelism: dy_TD = all_gather(dy_tD)
class ParallelVocabulary final : public Layer {
 public:
  ParallelVocabulary(std::int64_t entries, std::int64_t features, Parallel parallel, const VocabularyTie& tie = {});
  /// ids: i64 [T], the same on all ranks; returns the tokens that this rank holds between the layers.
  at::Tensor forward(const at::Tensor& ids_T);

  at::Tensor weight_vD;

 private:
  const Parallel parallel_;
  const std::int64_t entries_;
};

/// This rank's rows of a vocabulary: [begin, end), without padding.
Range vocabulary_range(std::int64_t entries, const Group& tp);

/// DataError that names the first id outside of 0 ... entries - 1 (and other than `except`) and its position; on CUDA a
/// device-side assertion. A rank with only a shard of the vocabulary could not detect it.
void check_entries(const char* what, const at::Tensor& numbers_T, std::int64_t entries,
                   std::optional<std::int64_t> except = std::nullopt);

/// y = W[positions], W replicated on every rank.
class LearnedPositions final : public Layer {
 public:
  LearnedPositions(std::int64_t positions, std::int64_t features, Parallel parallel);
  /// For the tokens that this rank holds between the layers.
  at::Tensor forward(const at::Tensor& positions_t);

  at::Tensor weight_PD;
};

}  // namespace trireme
