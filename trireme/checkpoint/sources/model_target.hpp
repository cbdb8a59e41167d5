#pragma once
// Writes the weights of a source as a Hugging Face folder or as a nanotron checkpoint, block by block.
#include <filesystem>
#include <optional>

#include "trireme/checkpoint/sources/model_source.hpp"

namespace trireme::checkpoint {

/// Both: `dtype`: of all weights; nullopt: each keeps its own. The folder appears when it is complete; CheckpointError
/// if it exists and is not empty, and for errors of the disk. The small files of the source come along.
void write_hugging_face(const ModelSource& source, const std::filesystem::path& folder,
                        std::optional<files::SafetensorsDtype> dtype);

struct NanotronLayout {
  int tp = 1, pp = 1;
  bool documented = false;  // Note [nanotron's folder]: ranks only in the names of tensors that are sharded
};
/// ConfigError if nanotron has no such model, or not with this layout.
void write_nanotron(const ModelSource& source, const std::filesystem::path& folder, const NanotronLayout& layout,
                    std::optional<files::SafetensorsDtype> dtype);

/// The small files of the source; config.json names the new dtype, if there is one.
FilesBeside files_for(const ModelSource& source, std::optional<files::SafetensorsDtype> dtype);

}  // namespace trireme::checkpoint
