#include "trireme/optim/optimizer.hpp"

#include "trireme/base/error.hpp"
#include "trireme/base/name_pattern.hpp"

namespace trireme {
namespace {

class Adam final : public Optimizer {
 public:
  explicit Adam(OptimizerOptions options) : options_(std::move(options)) {}
  const std::vector<std::string>& state_names() const override { return names_; }
  void step(std::span<const UpdateSlice> slices, double lr, std::int64_t step,
            const kernels::GradientFactor& factor) const override {
    std::vector<kernels::AdamSlice> all;
    for (const UpdateSlice& slice : slices)
      all.push_back({slice.values, slice.states[0], slice.states[1], slice.decay ? options_.weight_decay : 0});
    kernels::adam_steps(all,
                        {.lr = lr,
                         .beta1 = options_.beta1,
                         .beta2 = options_.beta2,
                         .eps = options_.eps,
                         .decoupled = options_.kind == OptimizerKind::adamw,
                         .step = step},
                        factor);
  }

 private:
  const OptimizerOptions options_;
  const std::vector<std::string> names_{"exp_avg", "exp_avg_sq"};
};

class Sgd final : public Optimizer {
 public:
  explicit Sgd(OptimizerOptions options) : options_(std::move(options)) {
    if (options_.momentum != 0) names_.emplace_back("momentum_buffer");
  }
  const std::vector<std::string>& state_names() const override { return names_; }
  void step(std::span<const UpdateSlice> slices, double lr, std::int64_t step,
            const kernels::GradientFactor& factor) const override {
    for (const UpdateSlice& slice : slices)
      kernels::sgd_step(slice.values, slice.states.empty() ? at::Tensor() : slice.states[0],
                        {.lr = lr,
                         .momentum = options_.momentum,
                         .weight_decay = slice.decay ? options_.weight_decay : 0,
                         .nesterov = options_.nesterov,
                         .step = step},
                        factor);
  }

 private:
  const OptimizerOptions options_;
  std::vector<std::string> names_;
};

}  // namespace

OptimizerKind parse_optimizer(std::string_view name) {
  if (name == "adamw") return OptimizerKind::adamw;
  if (name == "adam") return OptimizerKind::adam;
  require<ConfigError>(name == "sgd", "optimizer.name = \"", name, "\": must be adamw, adam or sgd");
  return OptimizerKind::sgd;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  if (options.kind == OptimizerKind::sgd) return std::make_unique<Sgd>(options);
  return std::make_unique<Adam>(options);
}

bool is_decayed(const std::string& name, const OptimizerOptions& options) {
  return !matches_any(name_patterns(options.no_decay), name);
}

}  // namespace trireme
