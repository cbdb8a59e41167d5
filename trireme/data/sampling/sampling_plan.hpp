#pragma once
// The sources, weights and stages that the samples of a run are drawn from; filled by the trainer from its config.
#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/data/tokens/token_source.hpp"

namespace trireme::data {

using SharedTokens = std::shared_ptr<const TokenSource>;

struct MixedSource {
  SharedTokens tokens;
  double weight = 1;  // share of the samples; any unit, only ratios count
};

/// Valid from `start_step` until the next stage starts.
struct SamplingStage {
  std::int64_t start_step = 1;  // must be 1 for the first stage
  std::int64_t seq_len = 0;
  std::vector<MixedSource> sources = {};
  bool whole_documents = false;  // Windows::of_documents
};

struct SamplingPlan {
  std::uint64_t seed = 0;
  std::int64_t global_batch_size = 1;
  double validation_fraction = 0;  // of the tokens of every source: Note [Held-out tokens]
  std::vector<SamplingStage> stages = {};
};

/// Throws ConfigError with the first rule that `plan` violates.
void check(const SamplingPlan& plan);

/// The sources of all stages, without duplicates, in order of first use. A source's index in this list determines its
/// sample order and its held-out tokens: not its name, because files move between runs.
std::vector<SharedTokens> sources_of(const SamplingPlan& plan);

/// The index in `sources` of the one with the same name.
std::size_t place_of(const TokenSource& tokens, const std::vector<SharedTokens>& sources);

}  // namespace trireme::data
