#pragma once
// The values that follow from others: degrees that were left open, the third of the batch sizes, sizes of heads,
// float64.
#include <string>

#include "trireme/config/read/parse.hpp"

namespace trireme::config {

/// How the ranks were started, as far as it is known.
struct Started {
  int ranks = 0;            // 0: not known
  std::string how = "";     // "torchrun, WORLD_SIZE=8"
  int ranks_of_a_host = 0;  // 0: not known
};

/// Fills in what was not given, where what it depends on is sound; validate() reports the rest. May be called again
/// with other ranks.
void derive(LoadedConfig& loaded, const Started& started = {});

/// The dtype of the weights: precision.param, else model.dtype; "auto" where neither says more.
std::string param_dtype(const Config& config);
/// Whether the run is in float64, as one of the two says: then everything is.
bool is_float64(const Config& config);

/// The number of ranks of one replica: tp x cp x pp.
std::int64_t ranks_of_a_replica(const ParallelismConfig& parallelism);

}  // namespace trireme::config
