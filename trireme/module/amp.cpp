#include "trireme/module/amp.hpp"

#include <ATen/ops/zeros.h>

namespace trireme {

AutocastScope::AutocastScope(at::DeviceType device, at::ScalarType dtype)
    : device_(device),
      enabled_before_(at::autocast::is_autocast_enabled(device)),
      dtype_before_(at::autocast::get_autocast_dtype(device)) {
  at::autocast::set_autocast_enabled(device, true);
  at::autocast::set_autocast_dtype(device, dtype);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();  // of converted weights
  at::autocast::set_autocast_dtype(device_, dtype_before_);
  at::autocast::set_autocast_enabled(device_, enabled_before_);
}

bool GradScaler::unscale(torch::optim::Optimizer& optimizer, Group& group) const {
  const at::NoGradGuard no_grad;
  at::Tensor bad;  // a gradient of some parameter is not finite
  for (const auto& parameters : optimizer.param_groups())
    for (const at::Tensor& parameter : parameters.params()) {
      if (!bad.defined()) bad = at::zeros({1}, parameter.options().dtype(at::kFloat).requires_grad(false));
      if (!parameter.grad().defined()) continue;
      parameter.grad().mul_(1 / scale_);
      bad.add_(parameter.grad().isfinite().all().logical_not().to(at::kFloat));
    }
  if (!bad.defined()) bad = at::zeros({1});
  return group.all_reduce(bad).wait().item<float>() == 0;
}

void GradScaler::update(bool finite) {
  if (!finite) {
    scale_ *= options_.backoff_factor;
    good_steps_ = 0;
  } else if (++good_steps_ == options_.growth_interval) {
    scale_ *= options_.growth_factor;
    good_steps_ = 0;
  }
}

bool GradScaler::step(torch::optim::Optimizer& optimizer, Group& group) {
  const bool finite = unscale(optimizer, group);
  if (finite) optimizer.step();
  update(finite);
  return finite;
}

}  // namespace trireme
