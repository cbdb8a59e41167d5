#include "trireme/data/sampling/sampling_plan.hpp"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.hpp"

namespace trireme::data {
namespace {

void check_stage(const SamplingStage& stage, std::size_t number) {
  const std::string name = text("data stage ", number);
  require<ConfigError>(stage.seq_len >= 1, name, ": seq_len = ", stage.seq_len, ": must be at least 1");
  require<ConfigError>(!stage.sources.empty(), name, " has no sources\n  fix: [[data]] sources = [...]");
  for (const MixedSource& source : stage.sources) {
    require(source.tokens != nullptr, name, ": a source without tokens");
    require<ConfigError>(std::isfinite(source.weight) && source.weight > 0, name, ": weight ", source.weight, " of ",
                         source.tokens->name(), ": must be a number above 0\n  fix: leave a source out to not use it");
    const auto same = [&](const MixedSource& other) { return other.tokens->name() == source.tokens->name(); };
    // Two counters over one order would yield every sample twice.
    require<ConfigError>(std::ranges::count_if(stage.sources, same) == 1, name, " names ", source.tokens->name(),
                         " more than once\n  fix: name it once, with the sum of the weights");
  }
}

}  // namespace

void check(const SamplingPlan& plan) {
  require<ConfigError>(plan.global_batch_size >= 1, "training.global_batch_size = ", plan.global_batch_size,
                       ": must be at least 1");
  // Written so that NaN is rejected.
  require<ConfigError>(0 <= plan.validation_fraction && plan.validation_fraction < 1,
                       "validation fraction = ", plan.validation_fraction, ": must be from 0 to below 1");
  require<ConfigError>(!plan.stages.empty(), "there is no data\n  fix: a [[data]] stage with sources");
  require<ConfigError>(plan.stages.front().start_step == 1, "data stage 1 starts at step ",
                       plan.stages.front().start_step, ": the first starts at step 1");
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    check_stage(plan.stages[i], i + 1);
    require<ConfigError>(i == 0 || plan.stages[i - 1].start_step < plan.stages[i].start_step, "data stage ", i + 1,
                         " starts at step ", plan.stages[i].start_step, ", stage ", i, " at step ",
                         i == 0 ? 0 : plan.stages[i - 1].start_step, ": must be in ascending order");
  }
}

std::vector<SharedTokens> sources_of(const SamplingPlan& plan) {
  std::vector<SharedTokens> sources;
  for (const SamplingStage& stage : plan.stages)
    for (const MixedSource& source : stage.sources)
      if (place_of(*source.tokens, sources) == sources.size()) sources.push_back(source.tokens);
  return sources;
}

std::size_t place_of(const TokenSource& tokens, const std::vector<SharedTokens>& sources) {
  const auto found = std::ranges::find_if(sources, [&](const auto& other) { return other->name() == tokens.name(); });
  return static_cast<std::size_t>(found - sources.begin());
}

}  // namespace trireme::data
