#pragma once
// The layout that a checkpoint is reshaped to: "tp=1,pp=2", applied to the one that it has.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/config/read/parse.hpp"

namespace trireme::checkpoint {

using LayoutChanges = std::vector<std::pair<std::string, std::int64_t>>;  // keys of [parallelism] without it, "tp"

/// Of pp, dp, cp, tp, ep, expert_tp, zero, replicate and virtual_stages, each at most once. ConfigError names the word.
/// `option`: the flag that they come from, for messages.
LayoutChanges parse_layout_changes(const std::string& words, const std::string& option = "--to");

/// What is not named stays, with three exceptions: an expert_tp that was tp follows it; explicit stages are given up if
/// the number of chunks changes; with another number of virtual_stages the schedule is interleaved-1f1b, or 1f1b for
/// one. ConfigError, with the word, if the result is not valid for the model.
void apply(const LayoutChanges& changes, config::LoadedConfig& loaded);

}  // namespace trireme::checkpoint
