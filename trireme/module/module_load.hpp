#pragma once
// A checkpoint of a module is read and verified, then applied.
#include <filesystem>
#include <memory>

#include "trireme/module/module_parts.hpp"

namespace trireme {

/// The newest complete checkpoint of a folder, or the checkpoint that `path` is. CheckpointError.
std::filesystem::path chosen_checkpoint(const std::filesystem::path& path);

/// The values for a module and its optimizer, in memory of their own.
class ModuleLoad {
 public:
  /// Reads and verifies all that this rank needs. Refers to the module's parts. CheckpointError.
  ModuleLoad(const std::filesystem::path& path, const ModuleParts& module, torch::optim::Optimizer* optimizer);
  ~ModuleLoad();

  std::int64_t step() const;
  /// Nothing can fail any more, except for want of memory.
  void apply();

 private:
  class Core;
  std::unique_ptr<Core> core_;
};

}  // namespace trireme
