#pragma once
// How fit() uses several devices.
#include <optional>
#include <vector>

#include <c10/core/Device.h>

#include "trireme/module/fully_shard.hpp"
#include "trireme/module/pipeline.hpp"

namespace trireme {

enum class ParallelismType { PIPELINE, FSDP };

struct FsdpConfig {
  Sharding sharding = Sharding::full_shard;
  /// None: wrap_never(), unlike fully_shard(): the whole module is one unit, which is gathered as a whole.
  std::optional<WrapPolicy> wrap_policy = std::nullopt;
  MixedPrecision mixed_precision = {};
  BackwardPrefetch backward_prefetch = BackwardPrefetch::pre;
};

struct Parallelism {
  ParallelismType p_type = ParallelismType::FSDP;
  /// None: all GPUs, or the CPU. A device may be given several times: that many ranks share it.
  std::optional<std::vector<at::Device>> devices = std::nullopt;
  int nb_device = 0;  // the first of them; below 1: all
  FsdpConfig config_fsdp = {};
  PipelineOptions config_pipeline = {.microbatches = 0};  // 0 microbatches: as many as devices
};

/// The devices of the ranks. ConfigError for an empty list, more than there are, or a device that does not exist.
std::vector<at::Device> devices_of(const Parallelism& parallel);

/// "FSDP (full_shard) on 2 devices", for messages and tables.
std::string str(const Parallelism& parallel);

}  // namespace trireme
