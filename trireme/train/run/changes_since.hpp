#pragma once
// What has changed in the config and the data between a checkpoint and the run that resumes from it.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "trireme/checkpoint/format/manifest.hpp"

namespace trireme {

using KeyValues = std::map<std::string, std::string>;

struct Changes {
  std::vector<std::string> refused;        // another run would result: the model, the data, the seed, the optimizer
  std::vector<std::string> refused_kinds;  // of `refused`, each once: "model", or what checkpoint.accept_changes takes
  std::vector<std::string> noted;          // the rest that has an effect: learning rates, batch sizes, the layout
  bool new_data = false, new_optimizer = false;  // accepted: their state starts anew
};

/// `config`: every key with its value; `data`: TrainData::identity(). `accepted`: checkpoint.accept_changes.
Changes changes_since(const checkpoint::Manifest& manifest, const KeyValues& config, const KeyValues& data,
                      const std::vector<std::string>& accepted);

/// CheckpointError that lists what is refused, if there is anything. `path`: of the checkpoint.
void require_nothing_refused(const std::filesystem::path& path, const Changes& changes);

/// ConfigError if a checkpoint after step `done` leaves nothing of `steps` to do.
void require_steps_left(const std::filesystem::path& path, std::int64_t done, std::int64_t steps);

/// For a run that is complete: what another config changes of it. Fewer steps than it has done are no change.
std::vector<std::string> changes_of_complete_run(const KeyValues& then, const KeyValues& now);

/// Whether a run with this config would go on with the run that the checkpoint is of, if nobody says so: only what has
/// no effect on the result may differ.
bool is_same_run(const KeyValues& then, const KeyValues& now);

}  // namespace trireme
