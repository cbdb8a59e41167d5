#pragma once
// Capabilities of the libtorch in use on this machine.
#include <string>
#include <vector>

namespace trireme {

struct LibtorchFacts {
  std::string built_with;  // version of the headers
  int threads = 0;
  std::string blas;   // the BLAS library of the CPU
  bool gloo = false;  // c10d backends compiled in
  bool nccl = false;
  bool cuda = false;  // compiled in and a device is available
  std::vector<std::string> gpus;
};

LibtorchFacts libtorch_facts();

/// 0 without CUDA.
int visible_gpus();  // 0 with TRIREME_DEVICE=cpu

}  // namespace trireme
