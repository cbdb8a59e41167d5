#pragma once
// The layers of the benchmark's models, as a user of libtorch would write them: they know nothing of ranks.
//
// Every layer that is a child of a model maps one tensor to one tensor, so that a pipeline can cut between any two
// children, and fully_shard can gather them one by one.
//
// N samples, S points or tokens of each, D width.
#include <cstdint>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

namespace trireme::workloads {

/// The sizes of an encoder block. ConfigError if the heads do not divide the width.
struct BlockOptions {
  std::int64_t width = 64, heads = 4, hidden = 128;
  double dropout = 0;
};

class SelfAttentionImpl : public torch::nn::Cloneable<SelfAttentionImpl> {
 public:
  explicit SelfAttentionImpl(const BlockOptions& options);
  void reset() override;
  /// `mask`, if defined, is added to the scores: [N, 1, 1, S].
  at::Tensor forward(const at::Tensor& x_NSD, const at::Tensor& mask = {});

 private:
  BlockOptions options_;
  torch::nn::Linear qkv_ = nullptr, out_ = nullptr;
};
TORCH_MODULE(SelfAttention);

class FeedForwardImpl : public torch::nn::Cloneable<FeedForwardImpl> {
 public:
  explicit FeedForwardImpl(const BlockOptions& options);
  void reset() override;
  at::Tensor forward(const at::Tensor& x_NSD);

 private:
  BlockOptions options_;
  torch::nn::Linear up_ = nullptr, down_ = nullptr;
};
TORCH_MODULE(FeedForward);

// Note [Padding as zeros]
// A child of a Sequential gets nothing but its input, so the input says which rows are padding: those of zeros only.
// The layers for points keep such rows at zero and attend to none of them. A row of a real point is not all zero: it
// starts with a one-hot dimension, and a sum of residuals is zero in every element only by an accident.

/// A linear map of each point.
class PointEmbeddingImpl : public torch::nn::Cloneable<PointEmbeddingImpl> {
 public:
  PointEmbeddingImpl(std::int64_t features, std::int64_t width);
  void reset() override;
  at::Tensor forward(const at::Tensor& x_NSF);

 private:
  std::int64_t features_, width_;
  torch::nn::Linear linear_ = nullptr;
};
TORCH_MODULE(PointEmbedding);

/// An encoder block that normalises before attention and MLP, over points without an order.
class PointBlockImpl : public torch::nn::Cloneable<PointBlockImpl> {
 public:
  explicit PointBlockImpl(const BlockOptions& options);
  void reset() override;
  at::Tensor forward(const at::Tensor& x_NSD);

 private:
  BlockOptions options_;
  torch::nn::LayerNorm attention_norm_ = nullptr, mlp_norm_ = nullptr;
  SelfAttention attention_ = nullptr;
  FeedForward mlp_ = nullptr;
  torch::nn::Dropout dropout_ = nullptr;
};
TORCH_MODULE(PointBlock);

/// Attention of one learned query to all points: [N, S, D] to [N, D].
class AttentionPoolingImpl : public torch::nn::Cloneable<AttentionPoolingImpl> {
 public:
  AttentionPoolingImpl(std::int64_t width, std::int64_t heads);
  void reset() override;
  at::Tensor forward(const at::Tensor& x_NSD);

 private:
  std::int64_t width_, heads_;
  torch::nn::LayerNorm norm_ = nullptr;
  torch::nn::Linear key_value_ = nullptr, out_ = nullptr;
  at::Tensor query_;
};
TORCH_MODULE(AttentionPooling);

/// Token and position embeddings, normalised: int64 [N, S] to [N, S, D]. ConfigError for more than `length` tokens.
class TextEmbeddingImpl : public torch::nn::Cloneable<TextEmbeddingImpl> {
 public:
  TextEmbeddingImpl(std::int64_t vocabulary, std::int64_t length, std::int64_t width, double dropout = 0);
  void reset() override;
  at::Tensor forward(const at::Tensor& tokens_NS);

 private:
  std::int64_t vocabulary_, length_, width_;
  double dropout_rate_;
  torch::nn::Embedding tokens_ = nullptr, positions_ = nullptr;
  torch::nn::LayerNorm norm_ = nullptr;
  torch::nn::Dropout dropout_ = nullptr;
};
TORCH_MODULE(TextEmbedding);

/// An encoder block that normalises after attention and MLP.
class TextBlockImpl : public torch::nn::Cloneable<TextBlockImpl> {
 public:
  explicit TextBlockImpl(const BlockOptions& options);
  void reset() override;
  at::Tensor forward(const at::Tensor& x_NSD);

 private:
  BlockOptions options_;
  torch::nn::LayerNorm attention_norm_ = nullptr, mlp_norm_ = nullptr;
  SelfAttention attention_ = nullptr;
  FeedForward mlp_ = nullptr;
  torch::nn::Dropout dropout_ = nullptr;
};
TORCH_MODULE(TextBlock);

/// tanh of a linear map of the first token: [N, S, D] to [N, D].
class FirstTokenPoolerImpl : public torch::nn::Cloneable<FirstTokenPoolerImpl> {
 public:
  explicit FirstTokenPoolerImpl(std::int64_t width);
  void reset() override;
  at::Tensor forward(const at::Tensor& x_NSD);

 private:
  std::int64_t width_;
  torch::nn::Linear linear_ = nullptr;
};
TORCH_MODULE(FirstTokenPooler);

}  // namespace trireme::workloads
