#pragma once
// What a process sets for all of libtorch: threads, the library for matrix products, the allocator of CPU tensors. A
// program makes one at its start; nothing else in Trireme changes these.
#include <optional>

#include "trireme/base/cgroup_facts.hpp"
#include "trireme/runtime/environment/environment.hpp"
#include "trireme/runtime/environment/variables.hpp"
#include "trireme/runtime/memory/counted_memory.hpp"

namespace trireme {

struct ProcessOptions {
  /// Threads of libtorch's operations; 0: as libtorch chooses.
  int threads = 0;
  /// Products of f32 and f64 on the CPU by BLAS alone. On aarch64 libtorch gives those of a linear layer's forward to
  /// oneDNN, which copies the weight first: slower, and the head's copy is the largest tensor of a step.
  bool blas_only = false;
  /// CPU tensors are counted, and large ones come from a cache (CountedMemory).
  bool cpu_memory = true;
};

/// While it lives its settings hold; then those of before.
class ProcessSetup {
 public:
  explicit ProcessSetup(const ProcessOptions& options);
  ~ProcessSetup();
  ProcessSetup(const ProcessSetup&) = delete;
  ProcessSetup& operator=(const ProcessSetup&) = delete;

  /// nullptr without cpu_memory.
  const CountedMemory* cpu_memory() const { return cpu_memory_ ? &*cpu_memory_ : nullptr; }

 private:
  const int threads_before_;
  const bool onednn_before_;
  std::optional<CountedMemory> cpu_memory_;
};

/// This rank's share of the cores of its host, unless OMP_NUM_THREADS says otherwise (0): a launcher of ours sets it,
/// others do not. The limit of the control group counts, and the cores that mpirun or srun bound this rank to. The same
/// number on every rank, because sums of libtorch's own depend on it.
int threads_of_rank(const Environment& environment, const Variables& variables, const CgroupPlaces& cgroup = {});

}  // namespace trireme
