#pragma once
// The stages of a pipeline as they are built, each on its rank alone.
#include <memory>
#include <vector>

#include "trireme/module/pipeline.hpp"

namespace trireme {

/// Of the children of a Sequential. ConfigError if two of them share a parameter: they may be on two ranks, where
/// nobody would add up its gradients.
std::vector<StageBuilder> builders_of(const std::shared_ptr<torch::nn::SequentialImpl>& stages);

/// Random numbers of the builder depend on the number of the stage alone.
Stage build_stage(const std::vector<StageBuilder>& builders, int stage);

}  // namespace trireme
