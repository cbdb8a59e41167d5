#pragma once
// The grid of ranks that [parallelism] describes.
#include "trireme/config/schema/config.hpp"
#include "trireme/layout/grid.hpp"

namespace trireme::config {

/// A dp that is left open (-1) counts as 1. ConfigError for an order that does not name the axes.
Grid dense_grid(const ParallelismConfig& parallelism);

}  // namespace trireme::config
