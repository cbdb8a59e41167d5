#pragma once
// What each part of a run wants to know, from the config. The dtypes of the config are resolved (dtypes.hpp).
#include "trireme/config/schema/config.hpp"
#include "trireme/nn/init.hpp"
#include "trireme/optim/loss_scale.hpp"
#include "trireme/optim/lr_schedule.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"
#include "trireme/zero/sharded_optimizer.hpp"

namespace trireme {

ParallelSizes parallel_sizes(const Config& config);
ZeroOptions zero_options(const Config& config);
UpdateOptions update_options(const Config& config);
InitOptions init_options(const Config& config);
LrSchedule::Options lr_options(const Config& config);
LossScale::Options loss_scale_options(const Config& config);

/// All of the above once, so that what is wrong is said before anything starts. Returns what deserves a word.
std::vector<std::string> check_options(const Config& config);

}  // namespace trireme
