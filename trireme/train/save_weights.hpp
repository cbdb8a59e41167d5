#pragma once
// Saves the trained weights as a Hugging Face folder, gathered from the shards.
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/train/model_folder.hpp"
#include "trireme/zero/zero.hpp"

namespace trireme {

/// What the disk of `folder`, which need not exist yet, lacks for the weights, and the fix; empty if they fit.
std::string missing_space_for_weights(Zero& zero, const ModelConfig& model, const std::filesystem::path& folder);

/// Saves the parameters of `zero`, trained and frozen, and the files `beside` them. Collective; rank 0 writes. One
/// bucket is gathered at a time. The folder appears atomically, and an existing one is never overwritten:
/// CheckpointError. Returns the names of the parameters that hold a NaN or an infinity, the same on all ranks.
std::vector<std::string> save_weights(Zero& zero, Mesh& mesh, const ModelConfig& model, const SmallFiles& beside,
                                      const std::filesystem::path& folder);

}  // namespace trireme
