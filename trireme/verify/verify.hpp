#pragma once
// Compares a layout with one rank, or with another layout: the same weights and the same batches, in float64.
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/schema/config.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"

namespace trireme {

/// What rounding may explain, relative.
struct VerifyTolerances {
  double loss = 1e-12;
  double tensor = 1e-12;  // Frobenius; of the norm of the reference, which counts as at least `least` of all gradients'
  double least = 1e-6;
};
/// Of "float64", "float32", "bfloat16" or "float16"; ConfigError for another.
VerifyTolerances verify_tolerances(const std::string& dtype);

struct VerifyOptions {
  int steps = 2;                  // batches that are compared; the weights stay those of the beginning
  std::string dtype = "float64";  // of weights and activations; in 16 bits, gradients are summed in float32
  std::optional<VerifyTolerances> tolerances = {};  // none: those of the dtype
};

/// The largest of all steps and ranks.
struct TensorDifference {
  std::string name;    // global: "layers.3.mlp.down.weight", or of a module: "layers.3"
  double max_abs = 0;  // of an element; of an activation: not known, 0
  double relative = 0;
  bool within = true;
};

struct VerifyResult {
  std::string reference = "one rank";            // what it is compared with
  std::vector<double> losses, reference_losses;  // of each step: of the layout, of the reference
  std::vector<TensorDifference> gradients;       // of every trained parameter, after all sums, in forward order
  std::vector<TensorDifference> activations;     // after every module of the residual stream, in forward order
  VerifyTolerances tolerances{};
  /// Where the difference begins: the first module in forward order whose output differs; if none does, the module of
  /// the first gradient in the order of backward; empty if all agree, or if only the loss differs.
  std::string first_module{};
  bool passed = false;

  /// Several lines: the losses, the largest differences, and where they begin.
  std::string str() const;
  /// A line per module of the residual stream: its output, and the gradients of its parameters.
  std::string table() const;
  /// One object.
  std::string json() const;
};

/// Runs the layout of the config with its ranks as threads of this process, on the CPU, and one rank with plain
/// autograd; works for built-in and registered families. `config` has derived values and an actual dp, as
/// read_training_config() returns it; its dtypes do not matter. ConfigError, DataError as in training.
VerifyResult verify(const Config& config, const VerifyOptions& options = {});

/// The same, but compared with the layout of `reference`, which also runs as threads: the same model, data and global
/// batch.
VerifyResult verify_against(const Config& config, const Config& reference, const VerifyOptions& options = {});

/// The same with the ranks of a job that is running, whose layout is that of the config. Collective; the result is the
/// same on all ranks, each of which computes the reference.
VerifyResult verify(const Config& config, const ParallelContext& context, const VerifyOptions& options = {});

}  // namespace trireme
