#pragma once
// The optimizers by name. Each updates any given slice of the parameters.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/kernels/optimizer/optimizer_step.hpp"
#include "trireme/layout/slices.hpp"

namespace trireme {

enum class OptimizerKind { adamw, adam, sgd };
/// "adamw", "adam", "sgd"; ConfigError for others.
OptimizerKind parse_optimizer(std::string_view name);

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adamw;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.9;
  bool nesterov = false;
  std::vector<std::string> no_decay = {"norm", "bias"};  // patterns of names (base/name_pattern.hpp)
};

/// Elements `range` of this rank's shard of a parameter, flattened; `offset` is where they begin in an UpdateSlice.
struct ParamSlice {
  std::string name;
  Shape shape;  // of this rank's shard of the parameter
  Range range;
  std::int64_t offset = 0;
};

/// The arguments of one update: flat tensors of equal length. Padding between the parameters is included, and stays
/// zero.
struct UpdateSlice {
  kernels::StepSlices values;
  std::vector<at::Tensor> states;      // in the order of state_names()
  std::span<const ParamSlice> params;  // sorted by offset
  bool decay = true;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// The per-element states, with the names that PyTorch uses.
  virtual const std::vector<std::string>& state_names() const = 0;
  /// Whether this parameter must not be split between ZeRO ranks, because the update is not element-wise.
  virtual bool needs_whole(const std::string& /*name*/, const Shape& /*shape*/) const { return false; }
  /// The slices of a bucket, all at once: on a GPU one launch may update them. `step` counts from 1.
  virtual void step(std::span<const UpdateSlice> slices, double lr, std::int64_t step,
                    const kernels::GradientFactor& factor) const = 0;
};

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

/// Whether weight decay applies to a parameter with this name.
bool is_decayed(const std::string& name, const OptimizerOptions& options);

}  // namespace trireme
