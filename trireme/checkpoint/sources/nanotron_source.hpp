#pragma once
// A nanotron checkpoint as a source of weights: Note [nanotron's folder].
#include <filesystem>
#include <memory>

#include "trireme/checkpoint/sources/model_source.hpp"

namespace trireme::checkpoint {

/// `path`: a checkpoint, or a folder of them with latest.txt. Its config.json, if there is one, describes the model,
/// else model_config.json. CheckpointError lists every file that is missing or has no place in the model, and names
/// shards that overlap, leave elements out or are outside of their tensor; SecurityError for any link.
std::unique_ptr<ModelSource> open_nanotron_source(const std::filesystem::path& path);

}  // namespace trireme::checkpoint
