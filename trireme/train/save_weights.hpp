#pragma once
// The trained weights as a Hugging Face folder, gathered from the shards.
#include <filesystem>
#include <optional>
#include <string>

#include "trireme/config/schema/config.hpp"
#include "trireme/data/tokenizer/tokenizer.hpp"
#include "trireme/zero/zero.hpp"

namespace trireme {

/// What stands in the folder beside the weights.
struct FolderFacts {
  const ModelConfig& model;
  std::string dtype;                                // of the weights, "bfloat16"
  const std::optional<data::Tokenizer>& tokenizer;  // for its token numbers
  std::string tokenizer_path;                       // tokenizer.json is copied from there
};

/// Why transformers could not load such a folder; empty when it can.
std::string what_transformers_lacks(const ModelConfig& model, const std::string& dtype);

/// A call of all ranks; the first writes. One bucket is whole at a time. The folder appears complete or not at all, and
/// none is ever written over: CheckpointError.
void save_weights(Zero& zero, Mesh& mesh, const FolderFacts& facts, const std::filesystem::path& folder);

}  // namespace trireme
