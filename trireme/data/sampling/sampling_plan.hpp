#pragma once
// What the samples of a run are drawn from: what a trainer fills from its config.
#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/data/tokens/token_source.hpp"

namespace trireme::data {

using SharedTokens = std::shared_ptr<const TokenSource>;

struct MixedSource {
  SharedTokens tokens;
  double weight = 1;  // its share of the samples; any unit, only ratios count
};

/// From `start_step` on, until the next stage starts.
struct SamplingStage {
  std::int64_t start_step = 1;  // of the first stage: 1
  std::int64_t seq_len = 0;
  std::vector<MixedSource> sources = {};
};

struct SamplingPlan {
  std::uint64_t seed = 0;
  std::int64_t global_batch_size = 1;
  double validation_fraction = 0;  // of the tokens of every source: Note [Held-out tokens]
  std::vector<SamplingStage> stages = {};
};

/// ConfigError with the first rule that `plan` breaks.
void check(const SamplingPlan& plan);

/// The sources of all stages, each once, in the order in which they are named. A source's place in this list decides
/// its order of samples and its held-out tokens: not its name, because files move between runs.
std::vector<SharedTokens> sources_of(const SamplingPlan& plan);

/// The place in `sources` of the one with that name.
std::size_t place_of(const TokenSource& tokens, const std::vector<SharedTokens>& sources);

}  // namespace trireme::data
