#include "trireme/workloads/layers.hpp"

#include <cmath>

#include <ATen/ops/arange.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tanh.h>

#include "trireme/base/error.hpp"

namespace trireme::workloads {
namespace {

void require_heads(std::int64_t width, std::int64_t heads) {
  require<ConfigError>(heads > 0 && width > 0 && width % heads == 0, "attention: width = ", width,
                       " is not divisible by heads = ", heads);
}

torch::nn::LayerNorm layer_norm(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

/// Note [Padding as zeros]: 1 for the row of a point, 0 for padding, as [N, S, 1].
at::Tensor points_of(const at::Tensor& x_NSD) { return x_NSD.detach().ne(0).any(-1, true).to(x_NSD.scalar_type()); }

/// What is added to the scores: 0 or, for padding, a number whose exponential is 0 in every dtype. Not minus infinity:
/// a softmax over padding alone would be NaN.
at::Tensor score_mask(const at::Tensor& points_NS1) { return ((points_NS1 - 1) * 1e4).transpose(1, 2).unsqueeze(1); }

}  // namespace

SelfAttentionImpl::SelfAttentionImpl(const BlockOptions& options) : options_(options) {
  require_heads(options.width, options.heads);
  reset();
}

void SelfAttentionImpl::reset() {
  qkv_ = register_module("qkv", torch::nn::Linear(options_.width, 3 * options_.width));
  out_ = register_module("out", torch::nn::Linear(options_.width, options_.width));
}

at::Tensor SelfAttentionImpl::forward(const at::Tensor& x_NSD, const at::Tensor& mask) {
  const std::int64_t heads = options_.heads;
  // Not qkv[0], qkv[1], qkv[2]: the gradient of each would fill a tensor of the size of all three.
  const std::vector<at::Tensor> qkv = qkv_(x_NSD)
                                          .view({x_NSD.size(0), x_NSD.size(1), 3, heads, options_.width / heads})
                                          .permute({2, 0, 3, 1, 4})
                                          .unbind();
  const at::Tensor y =
      at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], mask.defined() ? std::optional(mask) : std::nullopt);
  return out_(y.transpose(1, 2).reshape(x_NSD.sizes()));
}

FeedForwardImpl::FeedForwardImpl(const BlockOptions& options) : options_(options) { reset(); }

void FeedForwardImpl::reset() {
  up_ = register_module("up", torch::nn::Linear(options_.width, options_.hidden));
  down_ = register_module("down", torch::nn::Linear(options_.hidden, options_.width));
}

at::Tensor FeedForwardImpl::forward(const at::Tensor& x_NSD) { return down_(at::gelu(up_(x_NSD))); }

PointEmbeddingImpl::PointEmbeddingImpl(std::int64_t features, std::int64_t width) : features_(features), width_(width) {
  reset();
}

void PointEmbeddingImpl::reset() { linear_ = register_module("linear", torch::nn::Linear(features_, width_)); }

at::Tensor PointEmbeddingImpl::forward(const at::Tensor& x_NSF) { return linear_(x_NSF) * points_of(x_NSF); }

PointBlockImpl::PointBlockImpl(const BlockOptions& options) : options_(options) { reset(); }

void PointBlockImpl::reset() {
  attention_norm_ = register_module("attention_norm", layer_norm(options_.width));
  attention_ = register_module("attention", SelfAttention(options_));
  mlp_norm_ = register_module("mlp_norm", layer_norm(options_.width));
  mlp_ = register_module("mlp", FeedForward(options_));
  dropout_ = register_module("dropout", torch::nn::Dropout(options_.dropout));
}

at::Tensor PointBlockImpl::forward(const at::Tensor& x_NSD) {
  const at::Tensor points_NS1 = points_of(x_NSD);
  const at::Tensor h_NSD = x_NSD + dropout_(attention_(attention_norm_(x_NSD), score_mask(points_NS1)));
  return (h_NSD + dropout_(mlp_(mlp_norm_(h_NSD)))) * points_NS1;
}

AttentionPoolingImpl::AttentionPoolingImpl(std::int64_t width, std::int64_t heads) : width_(width), heads_(heads) {
  require_heads(width, heads);
  reset();
}

void AttentionPoolingImpl::reset() {
  norm_ = register_module("norm", layer_norm(width_));
  key_value_ = register_module("key_value", torch::nn::Linear(width_, 2 * width_));
  out_ = register_module("out", torch::nn::Linear(width_, width_));
  const std::int64_t head_width = width_ / heads_;
  query_ = register_parameter("query", at::randn({heads_, head_width}) / std::sqrt(static_cast<double>(head_width)));
}

at::Tensor AttentionPoolingImpl::forward(const at::Tensor& x_NSD) {
  const std::int64_t samples = x_NSD.size(0), head_width = width_ / heads_;
  const std::vector<at::Tensor> kv =
      key_value_(norm_(x_NSD)).view({samples, x_NSD.size(1), 2, heads_, head_width}).permute({2, 0, 3, 1, 4}).unbind();
  const at::Tensor q = query_.view({1, heads_, 1, head_width}).expand({samples, -1, -1, -1});
  return out_(at::scaled_dot_product_attention(q, kv[0], kv[1], score_mask(points_of(x_NSD))).view({samples, width_}));
}

TextEmbeddingImpl::TextEmbeddingImpl(std::int64_t vocabulary, std::int64_t length, std::int64_t width, double dropout)
    : vocabulary_(vocabulary), length_(length), width_(width), dropout_rate_(dropout) {
  reset();
}

void TextEmbeddingImpl::reset() {
  tokens_ = register_module("tokens", torch::nn::Embedding(vocabulary_, width_));
  positions_ = register_module("positions", torch::nn::Embedding(length_, width_));
  norm_ = register_module("norm", layer_norm(width_));
  dropout_ = register_module("dropout", torch::nn::Dropout(dropout_rate_));
}

at::Tensor TextEmbeddingImpl::forward(const at::Tensor& tokens_NS) {
  require<ConfigError>(tokens_NS.size(1) <= length_, "text of ", tokens_NS.size(1), " tokens: the model has ", length_,
                       " positions");
  const at::Tensor places_S = at::arange(tokens_NS.size(1), tokens_NS.options());
  return dropout_(norm_(tokens_(tokens_NS) + positions_(places_S)));
}

TextBlockImpl::TextBlockImpl(const BlockOptions& options) : options_(options) { reset(); }

void TextBlockImpl::reset() {
  attention_ = register_module("attention", SelfAttention(options_));
  attention_norm_ = register_module("attention_norm", layer_norm(options_.width));
  mlp_ = register_module("mlp", FeedForward(options_));
  mlp_norm_ = register_module("mlp_norm", layer_norm(options_.width));
  dropout_ = register_module("dropout", torch::nn::Dropout(options_.dropout));
}

at::Tensor TextBlockImpl::forward(const at::Tensor& x_NSD) {
  const at::Tensor h_NSD = attention_norm_(x_NSD + dropout_(attention_(x_NSD)));
  return mlp_norm_(h_NSD + dropout_(mlp_(h_NSD)));
}

FirstTokenPoolerImpl::FirstTokenPoolerImpl(std::int64_t width) : width_(width) { reset(); }

void FirstTokenPoolerImpl::reset() { linear_ = register_module("linear", torch::nn::Linear(width_, width_)); }

at::Tensor FirstTokenPoolerImpl::forward(const at::Tensor& x_NSD) { return at::tanh(linear_(x_NSD.select(1, 0))); }

}  // namespace trireme::workloads
