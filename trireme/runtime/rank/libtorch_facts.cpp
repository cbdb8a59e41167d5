#include "trireme/runtime/rank/libtorch_facts.hpp"

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

int visible_gpus() { return torch::cuda::is_available() ? static_cast<int>(torch::cuda::device_count()) : 0; }

}  // namespace trireme
