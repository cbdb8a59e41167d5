#pragma once
// A checkpoint as whole tensors in safetensors files, which other programs read.
#include <cstdint>
#include <filesystem>
#include <functional>

#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/files/safetensors_folder_write.hpp"

namespace trireme::checkpoint {

struct ConsolidateOptions {
  bool optimizer = false;  // its states too
  std::uint64_t max_shard_bytes = files::kMaxShardBytes;
  std::function<void(std::uint64_t done, std::uint64_t of)> progress{};  // bytes; may throw to give up
};

struct Consolidated {
  struct Written {
    std::size_t tensors = 0;
    std::uint64_t bytes = 0;
  };
  Written weights{}, states{};
};

/// Writes the new folder FOLDER/model.safetensors, or shards and an index: parameters and buffers under their names, in
/// the dtypes that they have in the checkpoint. With `optimizer` also FOLDER/optimizer/model.safetensors with the
/// states of the optimizer as NAME.KIND, such as "0.weight.exp_avg". For a checkpoint of a module
/// (module/module_checkpoint.hpp) and of a run, under our names for its weights, in the precision of the optimizer.
/// Every slice is verified; the folder appears when it is complete. CheckpointError: a folder that is there and not
/// empty; a disk that is full; a checkpoint without weights, or with `optimizer` without states that have names.
Consolidated consolidate(const Reader& source, const std::filesystem::path& folder,
                         const ConsolidateOptions& options = {});

}  // namespace trireme::checkpoint
