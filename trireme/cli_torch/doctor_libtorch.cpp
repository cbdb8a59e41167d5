// The libtorch section of `trireme doctor`.
#include "trireme/cli/commands.hpp"
#include "trireme/runtime/rank/libtorch_facts.hpp"

namespace trireme::cli {

std::vector<std::vector<std::string>> libtorch_report(const std::vector<std::string>& /*words*/) {
  const LibtorchFacts facts = libtorch_facts();
  std::string backends = text(facts.gloo ? "gloo" : "no gloo", facts.nccl ? ", nccl" : ", no nccl");
  std::string gpus = facts.cuda ? text(facts.gpus.size(), " visible") : "none";
  return {
      {"libtorch", facts.built_with, text(facts.threads, " threads, ", facts.blas)},
      {"backends", backends, ""},
      {"GPUs", gpus, ""},
  };
}

}  // namespace trireme::cli
