#pragma once
// A checkpoint of a module is read and verified, then applied.
#include <filesystem>
#include <memory>
#include <string>

#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/module/module_parts.hpp"

namespace trireme {

struct OpenedCheckpoint {
  std::filesystem::path path;
  std::unique_ptr<checkpoint::Reader> reader;
};

/// The newest complete checkpoint of a folder, or the checkpoint that `path` is, with all of its files. For one rank:
/// another one might see a newer checkpoint, and thousands of ranks would open each file. CheckpointError; StorageError
/// if the newest could not be read, which says nothing against it.
OpenedCheckpoint open_newest(const std::filesystem::path& path);

/// The same checkpoint on another rank: `manifest` is the text that the first one has sent, and only the files with
/// what this rank loads are opened. Errors as those of the Reader.
std::unique_ptr<checkpoint::Reader> open_for_rank(const std::filesystem::path& path, const std::string& manifest,
                                                  const ModuleParts& module, const LoadCheckpointOptions& options,
                                                  int rank);

/// The values for a module and its optimizer, in memory of their own.
class ModuleLoad {
 public:
  /// Reads and verifies all that rank `rank` of `ranks` needs. Refers to the module's parts and what the options point
  /// to. CheckpointError.
  ModuleLoad(std::unique_ptr<checkpoint::Reader> reader, const ModuleParts& module,
             const LoadCheckpointOptions& options, int rank, int ranks);
  ~ModuleLoad();

  std::int64_t step() const;
  /// Nothing can fail any more, except for want of memory.
  void apply();

 private:
  class Core;
  std::unique_ptr<Core> core_;
};

}  // namespace trireme
