#pragma once
// Reader for a model folder in Hugging Face layout: one safetensors file, or an index and its shards.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/files/safetensors.hpp"

namespace trireme::files {

/// The constructor opens all files and checks their headers: a run does not fail hours later because of one shard.
class SafetensorsFolder {
 public:
  struct Found {
    const Safetensors& file;
    SafetensorsEntry entry;
  };

  /// `path`: a .safetensors file; or a folder with model.safetensors, or else with model.safetensors.index.json, whose
  /// weight_map must contain base names (SecurityError), existing files, and for every tensor the file that holds it;
  /// no file may hold a tensor that the map assigns to another file. Tensors that are not in the map are ignored.
  /// Symlinks: Note [Links in a folder of shards]. CheckpointError names all missing files.
  explicit SafetensorsFolder(const std::filesystem::path& path);

  const std::string& shown() const { return shown_; }
  const std::vector<Safetensors>& files() const { return files_; }

  /// Sorted; valid for the lifetime of this object.
  const std::vector<std::string_view>& names() const { return names_; }
  std::optional<Found> find(std::string_view tensor) const;
  /// The same, but throws CheckpointError if the tensor does not exist.
  Found at(std::string_view tensor) const;
  /// Calls Safetensors::read for the tensor.
  void read(std::string_view tensor, std::span<const std::int64_t> starts, std::span<const std::int64_t> sizes,
            std::span<std::byte> out) const;

 private:
  void open_index(const std::filesystem::path& folder);

  std::string shown_;
  std::vector<Safetensors> files_;
  std::vector<std::string_view> names_;  // views into the files' headers
  std::vector<std::uint32_t> file_of_;   // of names_[i]
};

}  // namespace trireme::files
