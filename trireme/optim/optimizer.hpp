#pragma once
// The optimizers by name, each an update of whatever slice it is given.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/kernels/optimizer_step.hpp"

namespace trireme {

struct OptimizerOptions {
  std::string name = "adamw";  // adamw, adam, sgd
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.9;
  bool nesterov = false;
  std::vector<std::string> no_decay = {"norm", "bias"};  // parameters with one of these in their names
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// What it remembers of every element, by the names that PyTorch uses.
  virtual const std::vector<std::string>& state_names() const = 0;
  /// `states` in the order of their names; `step` from 1.
  virtual void step(const kernels::StepSlices& slices, std::span<const at::Tensor> states, double lr, bool decay,
                    std::int64_t step, const kernels::GradientFactor& factor) const = 0;
};

/// ConfigError for an unknown name.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

/// Whether weight decay works on a parameter of this name.
bool is_decayed(const std::string& name, const OptimizerOptions& options);

}  // namespace trireme
