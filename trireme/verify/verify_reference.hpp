#pragma once
// What a layout is compared with: losses, gradients and activations of the same batches on one rank, or on another
// layout.
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/mesh.hpp"
#include "trireme/config/schema/config.hpp"

namespace trireme {

// Note [Sketches]: activations are compared by a few random combinations of the features of each token, not stored
// whole: signs s with E[(s . d)^2] = |d|^2 show a difference d wherever it is. The norm of the token is kept beside.
inline constexpr std::int64_t kSketchColumns = 4;

/// [t, kSketchColumns + 1]: the combinations of each token, and its norm; f64.
at::Tensor sketch_of(const at::Tensor& x_tD);

struct ReferenceStep {
  double loss = 0;
  std::map<std::string, at::Tensor> gradients;  // by parameter; in host memory
  double gradient_norm = 0;                     // of all of them
  std::map<std::string, double> noise = {};     // by parameter, of its gradient: Note [Gradients that are noise]
  std::map<std::string, at::Tensor> sketches;   // by module: of the tokens by row id

  void add_sketch(const std::string& module, const at::Tensor& rows_t, const at::Tensor& x_tD, std::int64_t tokens);
  void set_gradient_norm();
};

struct Reference {
  std::string what;  // "one rank"
  std::vector<ReferenceStep> steps;
  std::vector<std::string> parameters, modules;  // in forward order
};

/// The tokens of a step over all ranks.
std::int64_t tokens_of_step(const Config& config, std::int64_t seq_len);

/// `config` for one rank with the same batches: a microbatch is that of all replicas together.
Config on_one_rank(Config config);

/// Plain autograd, neither Zero nor Executor. `config` is on_one_rank(). `moved`: each weight by one unit in its last
/// place.
Reference reference_of_one_rank(const Config& config, at::Device device, int steps, bool moved = false);

// Note [Gradients that are noise]: some gradients are zero by mathematics: of a router whose one weight is always 1, of
// queries that see a single key. What is computed is the rounding error of terms that cancel, and has no digit in
// common with that of another layout. How large it is: as far as the gradient moves when each weight moves by one unit
// in its last place. For other gradients that is far below what is allowed anyway.
/// Sets `noise` of the steps of `reference`. `alone` is on_one_rank(), for its steps.
void measure_noise(Reference& reference, const Config& alone, at::Device device);

/// Without steps: the names alone.
Reference names_of_reference(const Config& config, std::string what);

/// The mesh of the layout of a config.
Mesh mesh_for(const Config& config, World& world);

}  // namespace trireme
