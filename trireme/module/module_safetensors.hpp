#pragma once
// The weights of any torch::nn::Module as safetensors: what other programs, and Hugging Face's, read and write.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "trireme/module/module_checkpoint.hpp"

namespace trireme {

/// f(name, value) for every parameter and buffer of all ranks, whole, one in memory at a time. Collective.
void for_each_whole(const CheckpointedModule& what,
                    const std::function<void(const std::string& name, const at::Tensor& value)>& f);

struct LoadSafetensorsOptions {
  /// The name in the file of a parameter or buffer: for a file with other names. None: its own.
  std::function<std::string(const std::string& name)> rename = nullptr;
  /// false: tensors of the module that the file lacks stay as they are, and those of the file that the module lacks are
  /// left out.
  bool strict = true;
};

/// Parameters and buffers from a .safetensors file, or from a folder with one, or with shards and an index. Each rank
/// reads what it keeps. Tensors keep their own dtypes; a parameter with several names needs one of them. Collective.
/// Everything is read before anything changes: after a CheckpointError, on all ranks, all is as before.
///
///   load_safetensors({net, group}, "model.safetensors");
///   load_safetensors(model, "folder");                     // of fully_shard()
void load_safetensors(const CheckpointedModule& what, const std::filesystem::path& path,
                      const LoadSafetensorsOptions& options = {});

struct SaveSafetensorsOptions {
  std::function<std::string(const std::string& name)> rename = nullptr;  // as for loading
  std::uint64_t max_shard_bytes = 5'000'000'000;                         // of the files of a folder
};

/// Parameters and buffers (those of the first rank of each pipeline stage), whole, in their own dtypes: as one file if
/// the path ends with ".safetensors", which replaces one that is there, else as a new folder in Hugging Face's layout.
/// Rank 0 writes, one unit in memory at a time. A parameter with several names has its first. Collective.
/// CheckpointError, on all ranks: what could not be written.
void save_safetensors(const CheckpointedModule& what, const std::filesystem::path& path,
                      const SaveSafetensorsOptions& options = {});

}  // namespace trireme
