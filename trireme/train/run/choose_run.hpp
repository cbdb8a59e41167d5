#pragma once
// The folder of a run: a new one, or that of a run that was stopped and goes on.
#include <string>
#include <vector>

#include "trireme/config/schema/config.hpp"
#include "trireme/metrics/run_folder.hpp"
#include "trireme/train/run/changes_since.hpp"

namespace trireme {

// Note [Which run goes on]
//   auto    the run whose folder has exactly the name run.name, if it has a checkpoint but not all of its steps; else
//           the newest of NAME-2, NAME-3, ... that stores this run.name: a folder NAME-2 may also be another run that
//           somebody has called so. If run.name has a placeholder (%date), every start has another name, so only a run
//           with the same config is meant; without one the name is the user's own, and what has changed is checked when
//           the checkpoint is read.
//   a path  the newest run of this name that was begun with the same settings, this path among them: the same command
//           was started again, by a scheduler perhaps.
//   never   none
// If a launcher restarts its ranks, the run that they have begun goes on, whatever checkpoint.resume says: its folder
// has the launcher's mark. If the newest run that is meant is complete, there is nothing to do: a second training is
// only begun for `never`. A complete run with another config is an error if it has exactly the name run.name; NAME-2 is
// then passed over. A run of the user's own name that is still running is an error; with a placeholder, where every
// start has a folder of its own, it is left alone.
struct RunRequest {
  const Config& config;    // derived
  const KeyValues& given;  // fingerprint_of_config()
  metrics::RunFacts facts{};
  std::string start{};  // the same for all attempts of one launcher, and for no other; empty: not known
  int attempt = 0;      // how often that launcher has restarted the ranks
};

struct ChosenRun {
  metrics::RunFolder folder;
  std::string complete{};            // not empty: `folder` is a run with all of its steps, and this says so
  std::vector<std::string> notes{};  // for display: why a run that may have been meant does not go on
};

/// Removes what runs in `dir` that were killed while they saved have left: no later run writes to their folders. Runs
/// that may be running are left alone.
void remove_unfinished_of_runs(const std::filesystem::path& dir);

/// Makes the folder of a new run. ConfigError if that is not possible, if the run that is meant is still running, and
/// if its lock cannot be taken.
ChosenRun choose_run(const RunRequest& request);

/// That the run has all of its `steps`, for the user, or "".
std::string complete_text(const std::filesystem::path& run, const Config& config, std::int64_t steps);

}  // namespace trireme
