#include "trireme/train/choose_run.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/stopwatch.hpp"
#include "trireme/checkpoint/commit.hpp"
#include "trireme/checkpoint/reader.hpp"
#include "trireme/files/folder_lock.hpp"

namespace trireme {
namespace {

// Of the runs that may be meant: to look at thousands would take longer than the start of a run may.
constexpr std::size_t kNewestRuns = 16;

/// The manifest of the newest complete checkpoint of a run.
std::optional<checkpoint::Manifest> newest_manifest(const std::filesystem::path& run) {
  for (const checkpoint::FoundCheckpoint& found : checkpoint::checkpoints_in(run / "checkpoints")) try {
      return checkpoint::Reader(found.path).manifest();
    } catch (const Error&) {  // damaged, or not ours: an older one may be good
    }
  return std::nullopt;
}

std::int64_t planned_steps(const checkpoint::Manifest& manifest) {
  const auto found = manifest.config.find("training.steps");
  std::int64_t steps = 0;
  if (found != manifest.config.end())
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), steps);
  return steps;
}

/// Waits a little: the ranks of a launcher that was killed need a moment to notice.
bool is_still_running(const std::filesystem::path& run) {
  constexpr double kMoment = 5;
  const Stopwatch time;
  for (;;) try {
      const files::FolderLock lock(run);
      return false;
    } catch (const ConfigError&) {
      if (time.seconds() > kMoment) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
}

std::optional<std::filesystem::path> run_that_goes_on(const Config& config, const KeyValues& given) {
  const bool own_name = config.run.name.find('%') == std::string::npos;
  std::vector<std::filesystem::path> runs = report::runs_of(config.run.dir, config.run.name);
  runs.resize(std::min(runs.size(), kNewestRuns));
  for (const std::filesystem::path& run : runs) {
    const std::optional<checkpoint::Manifest> newest = newest_manifest(run);
    // A run of the user's own name whose checkpoints are all damaged is not begun anew without a word.
    if (!newest && own_name && !checkpoint::checkpoints_in(run / "checkpoints").empty()) return run;
    if (!newest) continue;
    if (!own_name && !is_same_run(newest->config, given)) continue;
    const std::int64_t steps = own_name ? config.training.steps : planned_steps(*newest);
    if (newest->training.step >= steps) return std::nullopt;  // the newest one is complete: a new one begins
    if (!is_still_running(run)) return run;
  }
  return std::nullopt;
}

}  // namespace

void remove_unfinished_of_runs(const std::filesystem::path& dir) {
  std::error_code failed;
  for (auto run = std::filesystem::directory_iterator(dir, failed);
       !failed && run != std::filesystem::directory_iterator(); run.increment(failed))
    try {
      const std::filesystem::path checkpoints = run->path() / "checkpoints";
      if (run->is_symlink() || !checkpoint::has_unfinished(checkpoints) || !files::is_surely_free(run->path()))
        continue;
      const files::FolderLock lock(run->path());
      checkpoint::remove_unfinished(files::real_fs(), checkpoints);
    } catch (const Error&) {  // not ours to remove
    }
}

ChosenRun choose_run(const Config& config, const KeyValues& given, const report::RunFacts& facts) {
  report::run_name(config.run.name, facts);  // reports errors in run.name itself
  if (config.checkpoint.resume == "auto")
    if (const std::optional<std::filesystem::path> run = run_that_goes_on(config, given))
      return {.folder = {*run, /*is_new=*/false}, .goes_on = true};
  try {
    return {.folder = report::make_run_folder(config.run.dir, config.run.name, facts)};
  } catch (const ConfigError& e) {
    throw ConfigError(
        text("run.dir = \"", config.run.dir, "\": ", e.what(), "\n  fix: a folder that can be written to"));
  }
}

}  // namespace trireme
