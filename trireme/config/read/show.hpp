#pragma once
// A config for people: every key with its value and where it came from, and what the model amounts to.
#include <string>

#include "trireme/config/read/parse.hpp"

namespace trireme::config {

/// Every key = value, then where the value came from and what nanotron and torchtitan call the key. The result is TOML.
std::string show(LoadedConfig& loaded);

/// The keys that somebody gave, as TOML that gives the same config again.
std::string to_toml(LoadedConfig& loaded);

/// Parameters, FLOPs of a token, bytes of states and activations of a rank, each by component. Empty without a model.
std::string describe_model(const LoadedConfig& loaded);

}  // namespace trireme::config
