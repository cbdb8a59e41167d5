#pragma once
// Saves the trained weights as a Hugging Face folder, gathered from the shards.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/schema/config.hpp"
#include "trireme/data/tokenizer/tokenizer.hpp"
#include "trireme/zero/zero.hpp"

namespace trireme {

/// Metadata for the other files in the folder.
struct FolderFacts {
  const ModelConfig& model;
  std::string dtype;                                // of the weights, "bfloat16"
  const std::optional<data::Tokenizer>& tokenizer;  // for its token ids
  std::string tokenizer_path;                       // tokenizer.json is copied from there
};

/// Why transformers could not load such a folder; empty if it can.
std::string what_transformers_lacks(const ModelConfig& model, const std::string& dtype);

/// What the disk of `folder`, which need not exist yet, lacks for the weights, and the fix; empty if they fit.
std::string missing_space_for_weights(Zero& zero, const FolderFacts& facts, const std::filesystem::path& folder);

/// Saves the parameters of `zero`, trained and frozen. Collective; rank 0 writes. One bucket is gathered at a time. The
/// folder appears atomically, and an existing one is never overwritten: CheckpointError.
/// Returns the names of the parameters that hold a NaN or an infinity, the same on all ranks.
std::vector<std::string> save_weights(Zero& zero, Mesh& mesh, const FolderFacts& facts,
                                      const std::filesystem::path& folder);

}  // namespace trireme
