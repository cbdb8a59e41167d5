#pragma once
// The rank grid and the split of samples described by [parallelism].
#include <optional>

#include "trireme/config/schema/config.hpp"
#include "trireme/layout/context_split.hpp"
#include "trireme/layout/grid.hpp"

namespace trireme::config {

/// An unset dp (-1) counts as 1. ConfigError for an order that does not name the axes.
Grid dense_grid(const ParallelismConfig& parallelism);

/// The other view of its ranks, for experts; nullopt for a model without.
std::optional<Grid> expert_grid(const ModelConfig& model, const ParallelismConfig& parallelism);

/// How the tokens of a sample are split over cp.
ContextSplit context_split_of(const Config& config);

}  // namespace trireme::config
