#pragma once
// From the config's token files to the microbatches of a step, as tensors.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/mesh.hpp"
#include "trireme/config/config.hpp"
#include "trireme/data/prefetch.hpp"
#include "trireme/data/sampler.hpp"
#include "trireme/data/tokenizer.hpp"
#include "trireme/data/validation.hpp"
#include "trireme/nn/forward_context.hpp"

namespace trireme {

/// T tokens of this rank: b samples of s tokens each.
struct Microbatch {
  at::Tensor ids_T, targets_T;  // targets: CrossEntropyOptions::ignore_index where a label does not count
  ForwardContext context;
  std::int64_t valid = 0;  // targets that count
};

/// What a run is trained and judged on. Opening it checks all that can be checked before the first step.
class Batches {
 public:
  /// DataError names a file that is missing or was made with another tokenizer than the config names.
  Batches(const Config& config, const Mesh& mesh, at::Device device);
  ~Batches();

  std::int64_t num_microbatches() const { return split_.num_microbatches(); }
  /// All microbatches of a step; those of the next are being made meanwhile.
  std::vector<Microbatch> take(std::int64_t step);

  bool validates() const { return validation_.has_value(); }
  std::int64_t num_validation_batches() const;
  Microbatch validation_batch(std::int64_t batch) const;

  /// For people: "shakespeare.ds · 1.1M tokens · 0.7 epochs planned".
  std::string describe() const;
  const std::optional<Tokenizer>& tokenizer() const { return tokenizer_; }

 private:
  SamplingPlan make_plan() const;
  Microbatch tensors_of(const TokenBatch& batch, std::int64_t step, bool training) const;

  const Config config_;
  const at::Device device_;
  const int dp_, dp_rank_;
  std::optional<Tokenizer> tokenizer_;
  SamplingPlan plan_;
  Sampler sampler_;
  BatchSplit split_;
  BatchMaker maker_;
  std::optional<ValidationSet> validation_;
  std::unique_ptr<Prefetch> prefetch_;  // last: it uses the rest
};

}  // namespace trireme
