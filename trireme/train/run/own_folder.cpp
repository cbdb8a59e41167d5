#include "trireme/train/run/own_folder.hpp"

#include <chrono>
#include <iostream>
#include <string_view>
#include <thread>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/stop_signals.hpp"
#include "trireme/base/stopwatch.hpp"
#include "trireme/checkpoint/format/commit.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> checkpoint_paths(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const checkpoint::FoundCheckpoint& found : checkpoint::checkpoints_in(folder)) out.push_back(found.path);
  return out;
}

}  // namespace

std::unique_ptr<files::FolderLock> lock_run(const fs::path& run) {
  constexpr double kMoment = 5;
  const Stopwatch time;
  for (;;) try {
      return std::make_unique<files::FolderLock>(run, files::FolderLockOptions{.on_wait = [](const std::string& what) {
                                                   std::cerr << "note: " << what << std::endl;
                                                 }});
    } catch (const files::LockHeld&) {
      if (time.seconds() > kMoment) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
}

namespace {

/// Of our own run: a signal during the start removes it.
std::unique_ptr<files::FolderLock> lock_own_run(const fs::path& run) {
  const StopSignals::Hold until_it_can_be_removed;
  auto lock = lock_run(run);
  StopSignals::remove_when_leaving(lock->path());
  return lock;
}

}  // namespace

OwnFolder::OwnFolder(fs::path run, std::vector<std::string>& warnings)
    : run_(std::move(run)), lock_(lock_own_run(run_)) {
  try {
    checkpoint::remove_unfinished(files::real_fs(), checkpoints());
  } catch (const Error& e) {
    warnings.emplace_back(e.what());
  }
}

std::vector<fs::path> OwnFolder::to_resume_from(const std::string& resume) const {
  std::vector<fs::path> found = checkpoint_paths(checkpoints());
  return found.empty() ? named_checkpoints(resume) : found;
}

std::vector<fs::path> named_checkpoints(const std::string& resume) {
  std::vector<fs::path> found;
  if (resume == "auto" || resume == "never") return found;
  const fs::path given(resume);
  std::error_code error;
  require<CheckpointError>(fs::is_directory(given, error), "checkpoint.resume = \"", resume,
                           "\": no such folder\n  fix: auto, never, a checkpoint, or the folder of a run");
  if (fs::exists(given / checkpoint::kManifestName, error)) return {given};
  for (const fs::path& place : {given, given / "checkpoints"})
    if (found = checkpoint_paths(place); !found.empty()) return found;
  throw CheckpointError(text("checkpoint.resume = \"", resume, "\": no checkpoint there (a folder with ",
                             checkpoint::kManifestName,
                             "), and no folder step-N\n  fix: auto, never, a checkpoint, or "
                             "the folder of a run; weights of a Hugging Face folder: model.init = \"hf:FOLDER\""));
}

void OwnFolder::begin_after(std::int64_t step, const std::vector<fs::path>& damaged,
                            std::vector<std::string>& warnings) const {
  for (const fs::path& path : damaged) try {
      if (path.parent_path() != checkpoints()) continue;
      warnings.push_back(
          text(path.string(), " is renamed to ", checkpoint::set_aside(files::real_fs(), path).filename().string()));
    } catch (const CheckpointError& e) {
      warnings.emplace_back(e.what());
    }
  for (const char* name : {"metrics.jsonl", "ranks.jsonl"})
    if (std::error_code error; fs::exists(run_ / name, error)) {
      const metrics::KeptRecords kept = metrics::drop_records_after(run_ / name, step);
      if (name == std::string_view("metrics.jsonl")) warn_of_lost_records(kept, step, warnings);
    } else if (name == std::string_view("metrics.jsonl") && has_own_checkpoint(step)) {
      warn_of_lost_records({}, step, warnings);
    }
}

bool OwnFolder::has_own_checkpoint(std::int64_t step) const {
  std::error_code error;
  return fs::exists(checkpoints() / text("step-", step), error);
}

/// The training does not need them; reports and plots do.
void OwnFolder::warn_of_lost_records(const metrics::KeptRecords& kept, std::int64_t step,
                                     std::vector<std::string>& warnings) const {
  const std::string file = (run_ / "metrics.jsonl").string();
  if (kept.gap_end > 0)
    warnings.push_back(text(file, ": the records of steps ", kept.gap_begin, " to ", kept.gap_end, " are missing"));
  if (kept.last < step && has_own_checkpoint(step))
    warnings.push_back(text(file, ": the records of steps ", kept.last + 1, " to ", step,
                            " are missing: the file was removed or cut"));
}

}  // namespace trireme
