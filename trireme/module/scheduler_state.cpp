#include "trireme/module/scheduler_state.hpp"

#include <cstdlib>
#include <iomanip>
#include <sstream>
#include <vector>

namespace trireme {
namespace {

/// torch gives access to the number of steps to derived classes only.
struct Access : torch::optim::LRScheduler {
  static unsigned torch::optim::LRScheduler::* steps() { return &Access::step_count_; }
};

}  // namespace

unsigned steps_of(const torch::optim::LRScheduler& scheduler) { return scheduler.*Access::steps(); }
void set_steps(torch::optim::LRScheduler& scheduler, unsigned steps) { scheduler.*Access::steps() = steps; }

std::string rates_text(const torch::optim::Optimizer& optimizer) {
  std::ostringstream out;
  for (const auto& group : optimizer.param_groups()) out << std::hexfloat << group.options().get_lr() << " ";
  return out.str();
}

bool set_rates(torch::optim::Optimizer& optimizer, const std::string& text) {
  std::vector<double> rates;
  std::istringstream in(text);
  for (std::string word; in >> word;) rates.push_back(std::strtod(word.c_str(), nullptr));
  if (rates.size() != optimizer.param_groups().size()) return false;
  for (std::size_t i = 0; i < rates.size(); ++i) optimizer.param_groups()[i].options().set_lr(rates[i]);
  return true;
}

}  // namespace trireme
