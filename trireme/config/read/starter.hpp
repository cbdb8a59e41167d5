#pragma once
// A commented config to begin with.
#include <string>

namespace trireme::config {

/// For a preset, or for a Hugging Face folder: with its weights and its tokenizer, if it has them. Comments are the
/// meanings of the keys. ConfigError if neither or both are given, or one is unknown.
std::string starter_toml(const std::string& preset, const std::string& hf_folder);

}  // namespace trireme::config
