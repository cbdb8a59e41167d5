#include "trireme/runtime/process_setup.hpp"

#include <algorithm>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <unistd.h>

namespace trireme {

ProcessSetup::ProcessSetup(const ProcessOptions& options)
    : threads_before_(at::get_num_threads()), onednn_before_(at::globalContext().userEnabledMkldnn()) {
  if (options.threads > 0) at::set_num_threads(options.threads);
  if (options.blas_only) at::globalContext().setUserEnabledMkldnn(false);
  if (options.cpu_memory) cpu_memory_.emplace();
}

ProcessSetup::~ProcessSetup() {
  at::globalContext().setUserEnabledMkldnn(onednn_before_);
  at::set_num_threads(threads_before_);
}

int threads_of_rank(const Environment& environment, const Variables& variables, const CgroupPlaces& cgroup) {
  if (variables.contains("OMP_NUM_THREADS")) return 0;
  // The cores of the process that started the ranks are shared by them. Ours may be fewer: then they are ours alone.
  const int shared = usable_cores(cgroup, ::getppid()), own = usable_cores(cgroup);
  return std::max(1, std::min(own, shared / std::max(1, environment.local_world_size)));
}

}  // namespace trireme
