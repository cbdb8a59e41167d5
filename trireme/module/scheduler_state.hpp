#pragma once
// The state of a torch::optim::LRScheduler: the steps that it has made, and the learning rates that it has set.
#include <string>

#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

namespace trireme {

unsigned steps_of(const torch::optim::LRScheduler& scheduler);
void set_steps(torch::optim::LRScheduler& scheduler, unsigned steps);

/// The learning rates of the groups of an optimizer, exactly: hexadecimal, separated by spaces.
std::string rates_text(const torch::optim::Optimizer& optimizer);
/// False, without effect: the text is not of as many groups.
bool set_rates(torch::optim::Optimizer& optimizer, const std::string& text);

}  // namespace trireme
