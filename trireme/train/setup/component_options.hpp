#pragma once
// The options of each component, derived from the config. Expects resolved dtypes (dtypes.hpp).
#include "trireme/config/schema/config.hpp"
#include "trireme/config/schema/lr_schedule.hpp"
#include "trireme/nn/init.hpp"
#include "trireme/optim/loss_scale.hpp"
#include "trireme/parallel/tensor/cross_entropy.hpp"
#include "trireme/parallel/zero/sharded_optimizer.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"

namespace trireme {

ParallelSizes parallel_sizes(const Config& config);
ZeroOptions zero_options(const Config& config);
UpdateOptions update_options(const Config& config);
/// Those of optimizer.frozen need no gradient from now on.
void freeze_parameters(const std::vector<Param>& params, const Config& config);
InitOptions init_options(const Config& config);
/// Of the training loss; validation has its own, without smoothing and z-loss.
CrossEntropyOptions loss_options(const Config& config, at::Device device);
LossScale::Options loss_scale_options(const Config& config);

/// Computes all of the above, so that errors are reported before anything starts. Returns warnings, of
/// which there are none at present.
std::vector<std::string> check_options(const Config& config);

}  // namespace trireme
