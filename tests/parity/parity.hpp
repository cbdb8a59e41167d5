#pragma once
// Parity tests: runs the same model on a layout and on one rank, and compares losses, all gradients, and parameters
// after some steps.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/mesh.hpp"
#include "trireme/config/schema/config.hpp"
#include "trireme/describe/counts.hpp"

namespace trireme::parity {

/// A model, a layout and a batch.
struct Cell {
  ModelConfig model;  // with derived values
  Degrees degrees = {};
  bool sequence_parallel = false;
  config::Recompute recompute = config::Recompute::none;
  /// Whether some targets are ignored: most of one sample's and none of another's.
  bool ignores = false;
  std::int64_t batch = 2, length = 12;
  int microbatches = 1;  // number of consecutive microbatches that the batch is split into
  /// Parameters whose name contains this are frozen.
  std::string frozen = "";
  int steps = 2;  // of SGD, before parameters are compared
  at::ScalarType dtype = at::kDouble;
  at::Device device = at::kCPU;

  std::string str() const;
};

/// The same model and batch on one rank, without recomputation.
Cell on_one_rank(Cell cell);

using Named = std::vector<std::pair<std::string, at::Tensor>>;  // in forward order

struct Outcome {
  std::vector<double> losses;  // per step: sum over the unmasked tokens, divided by their number
  Named activations;           // of the first step: the full residual stream after each module
  Named gradients;             // of the first step, full tensors, by full name
  double gradient_norm = 0;
  Named parameters;  // full tensors, after all steps
};

/// Collective. Throws if ranks that hold the same element disagree.
Outcome run(const Cell& cell, Mesh& mesh);
/// With ranks as threads of this process; returns the outcome of rank 0.
Outcome run_as_threads(const Cell& cell);

/// Tolerances.
struct Bounds {
  double loss = 1e-12;      // relative
  double gradient = 1e-12;  // Frobenius, relative to max(norm of the reference, least x the norm of all gradients)
  double least = 1e-6;
  double parameter = 1e-12;  // Frobenius, relative
};

/// One line for everything beyond its bound; empty if there is nothing. The first line names the module where the
/// difference begins: the first activation in forward order, or else the first gradient in backward order.
std::vector<std::string> differences(const Outcome& found, const Outcome& wanted, const Bounds& bounds = {});

/// The outcome with the elements of every tensor shifted by one, and other losses: a valid comparison must reject it.
Outcome rolled(const Outcome& outcome);

/// Cached reference outcomes.
class References {
 public:
  const Outcome& of(const Cell& cell);
  std::size_t size() const { return known_.size(); }

 private:
  std::map<std::string, Outcome> known_;
};

/// The differences, plus a line if something that the bounds can distinguish from the shifted reference was not
/// distinguished from it: with f64 bounds that is everything.
std::vector<std::string> judged(const Outcome& found, const Outcome& reference, const Bounds& bounds = {});

}  // namespace trireme::parity
