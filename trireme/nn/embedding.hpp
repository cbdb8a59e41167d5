#pragma once
// From numbers of tokens to vectors: the vocabulary cut over tp, and learned positions.
#include "trireme/nn/layer.hpp"

namespace trireme {

// V entries, v = ceil(V / tp); T tokens, t = T / tp; D features
/// y = W[ids] with the rows of W cut over tp; a rank has zeros for the tokens of others.
///   forward    y_TD = sum_r W_vD[ids]       all_reduce, or reduce_scatter to y_tD
///   backward   dW_vD[ids] += dy_TD          sequence parallel: dy_TD = all_gather(dy_tD)
class ParallelVocabulary final : public Layer {
 public:
  ParallelVocabulary(std::int64_t entries, std::int64_t features, Parallel parallel);
  /// ids: i64 [T], the same on all ranks; the result is of the tokens that this rank holds between the layers.
  at::Tensor forward(const at::Tensor& ids_T);

  at::Tensor weight_vD;

 private:
  const Parallel parallel_;
  const std::int64_t entries_;
};

/// This rank's rows of a vocabulary: [begin, end), without those that mean nothing.
Range vocabulary_range(std::int64_t entries, const Group& tp);

/// DataError that names the first number outside of 0 ... entries - 1 (and other than `except`) and its place; on CUDA
/// an assertion of the device. A rank that has only a part of the entries would not notice.
void check_entries(const char* what, const at::Tensor& numbers_T, std::int64_t entries,
                   std::optional<std::int64_t> except = std::nullopt);

/// y = W[positions], W whole on every rank.
class LearnedPositions final : public Layer {
 public:
  LearnedPositions(std::int64_t positions, std::int64_t features, Parallel parallel);
  /// Of the tokens that this rank holds between the layers.
  at::Tensor forward(const at::Tensor& positions_t);

  at::Tensor weight_PD;
};

}  // namespace trireme
