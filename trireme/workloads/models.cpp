#include "trireme/workloads/models.hpp"

#include <torch/nn/modules/linear.h>

namespace trireme::workloads {

torch::nn::Sequential orbit_model(const OrbitModelOptions& options) {
  const BlockOptions& block = options.block;
  torch::nn::Sequential out(PointEmbedding(options.features, block.width));
  for (std::int64_t i = 0; i < options.layers; ++i) out->push_back(PointBlock(block));
  out->push_back(AttentionPooling(block.width, block.heads));
  out->push_back(torch::nn::Linear(block.width, options.classes));
  return out;
}

torch::nn::Sequential bert_model(const BertModelOptions& options) {
  const BlockOptions& block = options.block;
  torch::nn::Sequential out(TextEmbedding(options.vocabulary, options.length, block.width, block.dropout));
  for (std::int64_t i = 0; i < options.layers; ++i) out->push_back(TextBlock(block));
  out->push_back(FirstTokenPooler(block.width));
  out->push_back(torch::nn::Linear(block.width, options.classes));
  return out;
}

}  // namespace trireme::workloads
