#pragma once
// The microbatches of a step, as tensors.
#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/comm/mesh.hpp"
#include "trireme/config/schema/config.hpp"
#include "trireme/data/sampling/prefetch.hpp"
#include "trireme/nn/forward_context.hpp"
#include "trireme/train/setup/train_data.hpp"

namespace trireme {

/// The T tokens of this rank: b samples of s tokens each.
struct Microbatch {
  at::Tensor ids_T, targets_T;  // targets: CrossEntropyOptions::ignore_index for masked labels
  ForwardContext context;
  std::int64_t valid = 0;  // number of targets that are not masked
};

/// The microbatches of this rank.
class Batches {
 public:
  Batches(const Config& config, const Mesh& mesh, at::Device device);
  ~Batches();

  std::int64_t num_microbatches() const { return split_.num_microbatches(); }
  /// All microbatches of a step; those of the next step are prefetched.
  std::vector<Microbatch> take(std::int64_t step);
  /// As many microbatches of the same shape without valid targets, for a rank whose data cannot be read.
  std::vector<Microbatch> empty(std::int64_t step) const;

  const TrainData& data() const { return data_; }
  /// For a run that resumes, before the first take().
  void continue_from(const data::DataPosition& position);
  std::int64_t num_validation_batches() const;
  Microbatch validation_batch(std::int64_t batch) const;

 private:
  void prefetch_from(std::int64_t step);
  Microbatch tensors_of(const data::TokenBatch& batch, std::int64_t step, bool training) const;

  const Config config_;
  const at::Device device_;
  const int dp_, dp_rank_;
  TrainData data_;
  data::BatchSplit split_;
  std::unique_ptr<data::Prefetch> prefetch_;  // last member: it uses the others
};

}  // namespace trireme
