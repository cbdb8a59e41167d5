#pragma once
// Whether a run fits the memory of its device, and what to change if it does not.
#include <string>

#include <c10/core/Device.h>

#include "trireme/config/schema/config.hpp"

namespace trireme {

/// Memory for the ranks that share it: those of a host, or of a GPU.
struct MemoryBudget {
  double total = 0, available = 0;  // bytes, for all of them
  int ranks = 1;
  bool on_gpu = false;
  std::string owner;  // "this host", "the control group of this process", "cuda:0"
};
/// `ranks`: of this host. On a GPU, one rank uses it, unless ranks share GPUs.
MemoryBudget memory_budget(at::Device device, int ranks);

/// Before anything is allocated: OutOfMemory if what a run keeps all the time (weights, gradients, states) is more than
/// all the memory there is; a warning if the prediction is more than what is available now; else "". `config` is
/// derived; dtypes may be unresolved.
std::string check_memory(Config config, const MemoryBudget& budget, at::Device device);

/// The same for `trireme verify`, of which `ranks` ranks of the layout and the reference are in the memory of `budget`.
/// Both configs have the dtype that is compared. OutOfMemory.
void check_memory_to_verify(const Config& compared, const Config& reference, int ranks, const MemoryBudget& budget);

/// After an allocation failed: the prediction, the memory, and two changes that need less.
std::string memory_advice(Config config, const MemoryBudget& budget, at::Device device);

}  // namespace trireme
