#pragma once
// The models of the benchmark: classifiers of persistence diagrams and of text.
#include <cstdint>

#include <torch/nn/modules/container/sequential.h>

#include "trireme/workloads/layers.hpp"

namespace trireme::workloads {

/// Zero dropout by default: a run is then the same on any number of ranks.
struct OrbitModelOptions {
  std::int64_t features = 4, classes = 5, layers = 2;
  BlockOptions block = {.width = 64, .heads = 4, .hidden = 128};
};

/// After Persformer (Reinauer, Caorsi and Berkouk, 2021): a transformer over the points of a persistence diagram, which
/// have no order. [N, points, features] to [N, classes]; rows of zeros are padding (Note [Padding as zeros]).
torch::nn::Sequential orbit_model(const OrbitModelOptions& options);

struct BertModelOptions {
  std::int64_t vocabulary = 1000, length = 32, classes = 2, layers = 2;
  BlockOptions block = {.width = 128, .heads = 2, .hidden = 512};
};

/// After BERT: int64 tokens [N, up to `length`] to [N, classes], read from the first token.
torch::nn::Sequential bert_model(const BertModelOptions& options);

}  // namespace trireme::workloads
