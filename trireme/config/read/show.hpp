#pragma once
// Prints a config for the user: every key with its value and origin, and the size and cost of the model.
#include <string>

#include "trireme/config/read/parse.hpp"

namespace trireme::config {

/// Every key = value, with its origin and its name in nanotron and torchtitan as a comment. The result is TOML.
/// `explained`: before each key a comment with its meaning.
std::string show(LoadedConfig& loaded, bool explained = false);

/// The same as one JSON object: {"training.steps": {"value": 400, "from": "run.toml:3"}, ...}.
std::string show_json(LoadedConfig& loaded);
/// The keys that were given, as TOML that loads to the same config.
std::string to_toml(LoadedConfig& loaded);

/// Parameters, FLOPs per token, bytes of states and activations per rank, each by component. Empty without a model.
std::string describe_model(const LoadedConfig& loaded);

}  // namespace trireme::config
