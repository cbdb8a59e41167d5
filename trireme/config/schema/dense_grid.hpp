#pragma once
// The rank grid described by [parallelism].
#include "trireme/config/schema/config.hpp"
#include "trireme/layout/grid.hpp"

namespace trireme::config {

/// An unset dp (-1) counts as 1. ConfigError for an order that does not name the axes.
Grid dense_grid(const ParallelismConfig& parallelism);

}  // namespace trireme::config
