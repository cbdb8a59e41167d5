#pragma once
// Saves the trained weights as a Hugging Face folder, gathered from the shards.
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/parallel/zero/zero.hpp"
#include "trireme/train/save/model_folder.hpp"
#include "trireme/train/save/storage_watch.hpp"

namespace trireme {

/// What the disk of `folder`, which need not exist yet, lacks for the state of a run, and the fix; empty if it fits.
/// The weights of checkpoint.export_hf do not count: they can be made of the checkpoint.
std::string missing_space(Zero& zero, const Config& config, const std::filesystem::path& folder);

/// Saves the parameters of `zero`, trained and frozen, and the files `beside` them. Collective; rank 0 writes. One
/// bucket is gathered at a time. The folder appears atomically, unless it is there and empty; one with files in it is
/// never overwritten: CheckpointError.
/// `watch`: of the file operations of rank 0, or null.
void save_weights(Zero& zero, Mesh& mesh, const ModelConfig& model, const SmallFiles& beside,
                  const std::filesystem::path& folder, StorageWatch* watch = nullptr);

/// The same for a checkpoint that is complete: Note [Export after commit]. Does nothing if it has them already.
/// CheckpointError says how to make them of the checkpoint. Storage that does not respond within the limits ends the
/// process of rank 0 with exit code 74.
void export_to_checkpoint(Zero& zero, Mesh& mesh, const ModelConfig& model, const std::filesystem::path& checkpoint,
                          const StallLimits& limits);

/// The names of the parameters that hold a NaN or an infinity, the same on all ranks. Collective.
std::vector<std::string> not_finite_weights(const Zero& zero, Mesh& mesh);

}  // namespace trireme
