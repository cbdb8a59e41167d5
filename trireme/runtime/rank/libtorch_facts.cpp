#include "trireme/runtime/rank/libtorch_facts.hpp"

#include <cstdlib>
#include <string>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

/// Whether libtorch contains a class, looked up by its typeinfo symbol: headers do not tell what a wheel was built
/// with.
bool has_class(const char* typeinfo_symbol) { return dlsym(RTLD_DEFAULT, typeinfo_symbol) != nullptr; }

}  // namespace

LibtorchFacts libtorch_facts() {
  LibtorchFacts facts;
  facts.built_with = TORCH_VERSION;
  facts.threads = at::get_num_threads();
  facts.blas = at::globalContext().hasMKL() ? "MKL" : at::globalContext().hasLAPACK() ? "OpenBLAS or LAPACK" : "none";
  if (at::globalContext().hasMKLDNN()) facts.blas += ", oneDNN";
  facts.gloo = has_class("_ZTIN4c10d16ProcessGroupGlooE");
  facts.nccl = has_class("_ZTIN4c10d16ProcessGroupNCCLE");
  facts.cuda = torch::cuda::is_available();
  for (int i = 0; i < visible_gpus(); ++i) facts.gpus.push_back(text("cuda:", i));
  return facts;
}

int visible_gpus() {
  const char* const value = std::getenv("TRIREME_DEVICE");
  const std::string wanted = value == nullptr || *value == '\0' ? "auto" : value;
  require<ConfigError>(wanted == "auto" || wanted == "cpu" || wanted == "cuda", "TRIREME_DEVICE = \"", wanted,
                       "\": must be auto, cpu or cuda");
  if (wanted == "cpu") return 0;
  const int gpus = torch::cuda::is_available() ? static_cast<int>(torch::cuda::device_count()) : 0;
  require<ConfigError>(gpus > 0 || wanted == "auto", "TRIREME_DEVICE = \"cuda\", and this host has no visible GPU\n",
                       "  fix: unset TRIREME_DEVICE, or see trireme doctor");
  return gpus;
}

}  // namespace trireme
