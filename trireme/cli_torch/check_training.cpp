// The part of `trireme config check` that looks at files and at this machine.
#include <algorithm>

#include "trireme/cli/commands.hpp"
#include "trireme/runtime/rank/libtorch_facts.hpp"
#include "trireme/train/component_options.hpp"
#include "trireme/train/dtypes.hpp"
#include "trireme/train/memory_check.hpp"
#include "trireme/train/rank_setup.hpp"

namespace trireme::cli {

std::string check_training(const CheckedConfig& checked, std::vector<std::string>& warnings) {
  const Config& config = checked.config;
  for (std::string& warning : check_options(config)) warnings.push_back(std::move(warning));
  check_inputs(config);
  const bool gpu = visible_gpus() > 0;
  const at::Device device(gpu ? at::kCUDA : at::kCPU);
  const std::string name = gpu ? libtorch_facts().gpus.front() : "cpu";
  Config resolved = config, native;
  native.model.dtype = native.precision.param = "auto";
  resolve_dtypes(resolved, device);
  resolve_dtypes(native, device);
  const std::string memory = check_memory(config, memory_budget(device, std::max(1, checked.ranks)), device);
  if (!memory.empty()) warnings.push_back(memory);
  const std::string& dtype = resolved.precision.param;
  if (dtype == "bfloat16" && native.precision.param != dtype)
    warnings.push_back(
        text("this machine (", name, ") does not multiply bfloat16 natively: it is slower than float32"));
  return text("machine      ", dtype, " on ", name,
              config.precision.param == "auto" && config.model.dtype == "auto" ? " (model.dtype = \"auto\")" : "",
              "\n");
}

}  // namespace trireme::cli
