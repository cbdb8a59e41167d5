#pragma once
// Training steps on a layout, and the same steps on one rank with plain autograd, for comparison.
#include <filesystem>
#include <string>

#include "tests/parity/parity.hpp"
#include "trireme/layout/context_split.hpp"
#include "trireme/parallel/zero/zero.hpp"

namespace trireme::parity {

struct TrainingCell {
  Cell base;  // model, degrees, sequence parallelism, recompute; its batch is the global batch
  int accumulation = 1;
  std::string schedule = "1f1b";  // with base.degrees.pp
  int virtual_stages = 1;
  ContextMethod context_method = ContextMethod::ring;  // with base.degrees.cp
  int ep = 1, expert_tp = 0;                           // of a model with experts; expert_tp = 0: tp
  bool documents = false;                              // samples of several documents that are apart
  ZeroOptions zero{};
  std::int64_t layers_per_unit = 1;
  std::string optimizer = "adamw";
  double max_norm = 0;
  bool deterministic = false;  // comm.deterministic
  int steps = 5;
  int first_step = 0;
  std::filesystem::path load_from{}, save_to{};  // a checkpoint, and the folder for one; empty: none

  std::string str() const;
};

/// Uses Partition, GradReducer, ShardedOptimizer and Executor. Gradients are those of the first step, before clipping;
/// `parameters` also contains the optimizer states.
Outcome train_as_threads(const TrainingCell& cell);

/// One rank, one microbatch, plain autograd, the optimizer formulas written out: uses none of the above.
Outcome train_plainly(const TrainingCell& cell);

}  // namespace trireme::parity
