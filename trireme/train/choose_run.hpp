#pragma once
// The folder of a run: a new one, or that of a run that was stopped and goes on.
#include <string>

#include "trireme/config/schema/config.hpp"
#include "trireme/report/run_folder.hpp"
#include "trireme/train/changes_since.hpp"

namespace trireme {

// Note [Which run goes on]: with checkpoint.resume = "auto" the newest run in run.dir whose name fits run.name, and
// that has a checkpoint but not all of its steps. If run.name has a placeholder (%date), every start has another name,
// so only a run with the same config is meant; without one the name is the user's own, and what has changed is checked
// when the checkpoint is read. A run that is still running is left alone.
struct ChosenRun {
  report::RunFolder folder;
  bool goes_on = false;
};

/// Removes what runs in `dir` that were killed while they saved have left: no later run writes to their folders. Runs
/// that may be running are left alone.
void remove_unfinished_of_runs(const std::filesystem::path& dir);

/// `config`: derived. Makes the folder of a new run. ConfigError if that is not possible.
ChosenRun choose_run(const Config& config, const KeyValues& given, const report::RunFacts& facts);

}  // namespace trireme
