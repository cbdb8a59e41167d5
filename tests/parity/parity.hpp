#pragma once
// The same model on a layout and on one rank: losses, every gradient, parameters after some steps. What every
// parallelism is compared by.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/mesh.hpp"
#include "trireme/config/schema/config.hpp"
#include "trireme/config/schema/counts.hpp"

namespace trireme::parity {

/// A model, a layout and a batch.
struct Cell {
  ModelConfig model;  // with its derived values
  Degrees degrees = {};
  bool sequence_parallel = false;
  config::Recompute recompute = config::Recompute::none;
  /// Some targets are ignored: most of one sample's and none of another's.
  bool ignores = false;
  std::int64_t batch = 2, length = 12;
  int microbatches = 1;  // that the batch is cut into, one after the other
  /// Parameters whose name holds this are not trained.
  std::string frozen = "";
  int steps = 2;  // of SGD, after which parameters are compared
  at::ScalarType dtype = at::kDouble;
  at::Device device = at::kCPU;

  std::string str() const;
};

/// The same model and batch on one rank, nothing recomputed.
Cell on_one_rank(Cell cell);

using Named = std::vector<std::pair<std::string, at::Tensor>>;  // in the order of the forward

struct Outcome {
  std::vector<double> losses;  // of each step: sum over the tokens that count, divided by their number
  Named activations;           // of the first step: the residual stream after each module, whole
  Named gradients;             // of the first step, whole, by full name
  double gradient_norm = 0;
  Named parameters;  // after all steps, whole
};

/// All ranks of the mesh call it. Throws where ranks that keep the same element disagree about it.
Outcome run(const Cell& cell, Mesh& mesh);
/// Ranks as threads of this process; what rank 0 has.
Outcome run_as_threads(const Cell& cell);

/// names.md, Tolerances.
struct Bounds {
  double loss = 1e-12;      // relative
  double gradient = 1e-12;  // Frobenius, relative to max(norm of the reference, least x the norm of all gradients)
  double least = 1e-6;
  double parameter = 1e-12;  // Frobenius, relative
};

/// Everything beyond its bound, one line each; empty when there is nothing. The first line names the module where it
/// begins: the first activation in the order of the forward, or else the first gradient in the order of the backward.
std::vector<std::string> differences(const Outcome& found, const Outcome& wanted, const Bounds& bounds = {});

/// The reference with the elements of every tensor moved on by one, and other losses: a comparison that takes it for
/// the right one is worth nothing.
Outcome rolled(const Outcome& outcome);

/// References, each computed once.
class References {
 public:
  const Outcome& of(const Cell& cell);
  std::size_t size() const { return known_.size(); }

 private:
  std::map<std::string, Outcome> known_;
};

/// The differences, and a line more if something that the bounds can tell from the moved-on reference was not told from
/// it: with the bounds of f64 that is everything.
std::vector<std::string> judged(const Outcome& found, const Outcome& reference, const Bounds& bounds = {});

}  // namespace trireme::parity
