#pragma once
// Copies of a model for the ranks of fit(), and the way of the trained values back. Only for fit.cpp.
#include <memory>
#include <vector>

#include "trireme/module/fit.hpp"

namespace trireme {

/// By clone(); ConfigError if it cannot be copied, or if a copy would be another model.
std::unique_ptr<FitModel> copy_of(FitModel& model);

/// The trained values, also where the sharding has left none. A pipeline and clone() number the children of a
/// Sequential.
void restore(torch::nn::Module& module, const std::vector<NamedTensor>& state, at::Device device);

}  // namespace trireme
