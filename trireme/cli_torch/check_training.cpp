// The part of `trireme config check` that looks at files and at this machine.
#include <algorithm>

#include "trireme/cli/commands.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/runtime/rank/libtorch_facts.hpp"
#include "trireme/train/run/own_folder.hpp"
#include "trireme/train/save/model_folder.hpp"
#include "trireme/train/setup/component_options.hpp"
#include "trireme/train/setup/dtypes.hpp"
#include "trireme/train/setup/memory_check.hpp"
#include "trireme/train/setup/rank_setup.hpp"

namespace trireme::cli {

std::string check_training(const CheckedConfig& checked, std::vector<std::string>& warnings) {
  Config& config = checked.config;
  const auto warn = [&](const std::string& warning) {
    if (!warning.empty()) warnings.push_back(warning);
  };
  for (const std::string& warning : check_options(config)) warn(warning);
  for (const std::string& warning : check_inputs(config)) warn(warning);
  named_checkpoints(config.checkpoint.resume);
  const bool gpu = visible_gpus() > 0;
  const at::Device device(gpu ? at::kCUDA : at::kCPU);
  check_device(config, device);
  const std::string name = gpu ? libtorch_facts().gpus.front() : "cpu";
  const bool automatic = config.precision.param == "auto" && config.model.dtype == "auto";
  Config native;
  native.model.dtype = native.precision.param = "auto";
  resolve_dtypes(config, device);
  resolve_dtypes(native, device);
  warn(check_memory(config, memory_budget(device, std::max(1, checked.ranks)), device));
  const std::string& dtype = config.precision.param;
  if (!config::family_of(config.model).is_registered())
    if (const std::string lack = what_transformers_lacks(config.model, dtype); !lack.empty())
      warn("the weights will be saved without a config.json for transformers: " + lack);
  if (dtype == "bfloat16" && native.precision.param != dtype)
    warn(text("this machine (", name, ") does not multiply bfloat16 natively: it is slower than float32"));
  return text("machine      ", dtype, " on ", name, automatic ? " (model.dtype = \"auto\")" : "", "\n");
}

}  // namespace trireme::cli
