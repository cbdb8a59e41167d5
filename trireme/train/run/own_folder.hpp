#pragma once
// The folder of this run: one writer, nothing unfinished, and the checkpoints that it may go on from.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "trireme/files/folder_lock.hpp"
#include "trireme/metrics/metrics_file.hpp"

namespace trireme {

/// The lock of a run's folder. Waits a little for a holder that lives: the ranks of a launcher that was killed need a
/// moment to notice. ConfigError as of FolderLock.
std::unique_ptr<files::FolderLock> lock_run(const std::filesystem::path& run);

/// The checkpoints that checkpoint.resume names, newest first, if it is a path: of a checkpoint, of a folder of them,
/// or of a run. CheckpointError if there are none there.
std::vector<std::filesystem::path> named_checkpoints(const std::string& resume);

/// Only on rank 0. While it lives no other run changes the folder: what is listed here stays as it is until this run
/// changes it.
class OwnFolder {
 public:
  /// Takes the lock and removes what interrupted saves have left; what cannot be removed is added to `warnings`.
  OwnFolder(std::filesystem::path run, std::vector<std::string>& warnings);

  std::filesystem::path checkpoints() const { return run_ / "checkpoints"; }

  /// The checkpoints that the run may continue from, newest first: its own; if it has none,
  /// named_checkpoints().
  std::vector<std::filesystem::path> to_resume_from(const std::string& resume) const;

  /// The run goes on after this step. Those of `damaged` that are its own are renamed, so that their steps can be saved
  /// again, and told in `warnings`; records of later steps are removed.
  void begin_after(std::int64_t step, const std::vector<std::filesystem::path>& damaged,
                   std::vector<std::string>& warnings) const;

  /// ConfigError if another run has taken the folder meanwhile: to be called before anything is changed for good.
  void check() const { lock_->check(); }

 private:
  bool has_own_checkpoint(std::int64_t step) const;
  void warn_of_lost_records(const metrics::KeptRecords& kept, std::int64_t step,
                            std::vector<std::string>& warnings) const;

  std::filesystem::path run_;
  std::unique_ptr<files::FolderLock> lock_;
};

}  // namespace trireme
