// The part of `trireme config check` that looks at files and at this machine.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/cli/commands.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/planner/memory.hpp"
#include "trireme/runtime/rank/fingerprint.hpp"
#include "trireme/runtime/rank/libtorch_facts.hpp"
#include "trireme/train/run/changes_since.hpp"
#include "trireme/train/run/own_folder.hpp"
#include "trireme/train/save/model_folder.hpp"
#include "trireme/train/save/save_buffer.hpp"
#include "trireme/train/setup/component_options.hpp"
#include "trireme/train/setup/dtypes.hpp"
#include "trireme/train/setup/memory_check.hpp"
#include "trireme/train/setup/rank_setup.hpp"
#include "trireme/train/step/microbatch_graphs.hpp"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

/// A run makes this folder, or one in it: so that a config is not valid here and refused there.
void check_run_dir(const Config& config) {
  fs::path at = fs::absolute(config.run.dir);
  std::error_code failed;
  while (!fs::exists(at, failed) && at.has_relative_path()) at = at.parent_path();
  std::string probe = (at / ".trireme-XXXXXX").string();
  const bool made = fs::is_directory(at, failed) && ::mkdtemp(probe.data()) != nullptr;
  const int why = errno;
  require<ConfigError>(
      made, "run.dir = \"", config.run.dir, "\": ", at.string(),
      fs::is_directory(at, failed) ? text(": no folder can be made there: ", errno_text(why)) : ": is not a folder",
      "\n  fix: a folder that can be written to");
  fs::remove(probe, failed);
}

/// Against the newest checkpoint that can be read. What the data are, `train` finds out.
void check_resume(const Config& config) {
  const std::vector<fs::path> candidates = named_checkpoints(config.checkpoint.resume);
  for (const fs::path& path : candidates) {
    std::optional<checkpoint::Manifest> manifest;
    try {
      manifest = checkpoint::Reader(path).manifest();
    } catch (const CheckpointError&) {  // a run tries the one before
      if (path == candidates.back()) throw;
      continue;
    }
    require_steps_left(path, manifest->training.step, config.training.steps);
    require_nothing_refused(path, changes_since(*manifest, fingerprint_of_config(config), manifest->training.data,
                                                config.checkpoint.accept_changes));
    return;
  }
}

}  // namespace

std::string check_training(const CheckedConfig& checked, std::vector<std::string>& warnings) {
  Config& config = checked.config;
  const auto warn = [&](const std::string& warning) {
    if (!warning.empty()) warnings.push_back(warning);
  };
  for (const std::string& warning : check_options(config)) warn(warning);
  for (const std::string& warning : check_inputs(config)) warn(warning);
  check_run_dir(config);
  const bool gpu = visible_gpus() > 0;
  const at::Device device(gpu ? at::kCUDA : at::kCPU);
  check_device(config, device);
  const std::string name = gpu ? libtorch_facts().gpus.front() : "cpu";
  const bool automatic = config.precision.param == "auto" && config.model.dtype == "auto";
  Config native;
  native.model.dtype = native.precision.param = "auto";
  resolve_dtypes(config, device);
  resolve_dtypes(native, device);
  static_cast<void>(uses_graphs(config, device, config::family_of(config.model).is_registered()));
  check_resume(config);
  // A buffer that is not given is as large as the host allows, and how many ranks a host will have is not known here.
  if (config.checkpoint.buffer_mb > 0) warn(save_buffer(config, planner::predict_saved_bytes(config), 1).warning);
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
