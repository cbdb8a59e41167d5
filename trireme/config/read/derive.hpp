#pragma once
// Derived config values: unset parallel degrees, the third of the three batch sizes, head sizes, float64 dtypes.
#include <string>

#include "trireme/config/read/parse.hpp"

namespace trireme::config {

/// How the ranks were started, if known.
struct Started {
  int ranks = 0;            // 0: unknown
  std::string how = "";     // "torchrun, WORLD_SIZE=8"
  int ranks_of_a_host = 0;  // 0: unknown
};

/// Fills in values that were not given if those they depend on are valid; validate() reports the rest. May be called
/// again with other ranks.
void derive(LoadedConfig& loaded, const Started& started = {});

/// The dtype of the weights: precision.param, else model.dtype; "auto" if both are.
std::string param_dtype(const Config& config);
/// Whether the run is in float64, by either of the two keys: then all dtypes are.
bool is_float64(const Config& config);

/// The number of ranks per data-parallel replica: tp x cp x pp.
std::int64_t ranks_of_a_replica(const ParallelismConfig& parallelism);

}  // namespace trireme::config
