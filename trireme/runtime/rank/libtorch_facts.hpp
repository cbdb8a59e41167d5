#pragma once
// What the libtorch that we run on can do on this machine.
#include <string>
#include <vector>

namespace trireme {

struct LibtorchFacts {
  std::string built_with;  // version of the headers
  int threads = 0;
  std::string blas;   // the CPU's matrix library
  bool gloo = false;  // c10d's backends, compiled in or not
  bool nccl = false;
  bool cuda = false;  // compiled in and a device is there
  std::vector<std::string> gpus;
};

LibtorchFacts libtorch_facts();

/// 0 without CUDA.
int visible_gpus();

}  // namespace trireme
