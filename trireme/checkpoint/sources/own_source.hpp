#pragma once
// A checkpoint of a training run as a source of weights.
#include <filesystem>
#include <memory>

#include "trireme/checkpoint/sources/model_source.hpp"

namespace trireme::checkpoint {

/// Whether the folder's checkpoint_metadata.json is the manifest of one: nanotron's has the same name.
bool is_own_checkpoint(const std::filesystem::path& folder);

/// `path`: a folder step-N. The model is described by its config.json, which names the dtype of the run's weights;
/// tensors() are in the precision of the optimizer. CheckpointError lists everything that is wrong, and every tensor
/// that is missing, has another shape or has no place in the model; every byte that is read is verified.
std::unique_ptr<ModelSource> open_own_source(const std::filesystem::path& path);

}  // namespace trireme::checkpoint
