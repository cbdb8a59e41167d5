#pragma once
// The learning rate schedule of a whole file of another trainer: its conventions and defaults, written out.
#include <optional>
#include <set>
#include <string>

#include "trireme/config/read/parse.hpp"
#include "trireme/config/translate/aliases.hpp"

namespace trireme::config {

/// What a file says about its schedule that is not among its translated settings.
struct ScheduleFacts {
  const std::set<std::string>& automatic;  // foreign keys that are "auto"
  const std::optional<Value>& total;       // DeepSpeed's total_num_steps, if the run has another number of steps
};

/// Completes the settings `taken` from a file, so that every step has the learning rate of that trainer. `loaded` is
/// what they say so far. ConfigError for a schedule that we do not have.
void complete_schedule(Framework from, Settings& taken, const LoadedConfig& loaded, const ScheduleFacts& facts);

}  // namespace trireme::config
