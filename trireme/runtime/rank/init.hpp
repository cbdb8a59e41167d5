#pragma once
// The start of a program that runs as ranks, in one line.
#include <filesystem>
#include <memory>

#include "trireme/runtime/rank/parallel_context.hpp"

namespace trireme {

struct RunOptions {
  /// One of them may be 0: what the others leave of the world.
  ParallelSizes sizes{.data_parallel_size = 0};
  ContextOptions context{};
  /// On a CPU, until the process ends: threads per rank, and an allocator that keeps large blocks (ProcessSetup), as in
  /// `trireme train`. false: libtorch's own settings stay, or those of a ProcessSetup that the program makes itself.
  bool sets_up_process = true;
  /// For the output of the ranks that `-n N` starts, rNNNN.log each. Empty: a new folder `ranks`, `ranks-2`, ... in the
  /// working directory, named by a note, and removed if all has gone well and no rank but the first has printed
  /// anything.
  std::filesystem::path log_folder{};
};

/// Makes this process a rank, under any launcher: `trireme launch`, torchrun, mpirun, srun, Kubernetes, or alone. With
/// `-n N` among the arguments it starts N ranks of this program, waits for them and exits; `-n N` is removed from them.
/// What rank 0 prints is printed here, that of the others is kept in files (RunOptions::log_folder).
/// From here on an exception that nobody catches ends the process as every error does: "error: ..." on stderr, and the
/// exit code of the failure. Call it first in main(), once.
///
///   int main(int argc, char** argv) {
///     const auto run = trireme::init(argc, argv);
///     ... run->device(), run->mesh(), run->dp_pg() ...
///   }
std::unique_ptr<ParallelContext> init(int& argc, char** argv, const RunOptions& options = {});

}  // namespace trireme
