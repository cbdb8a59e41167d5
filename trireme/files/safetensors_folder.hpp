#pragma once
// The tensors of a model folder in Hugging Face's layout: one safetensors file, or an index and its shards.
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

/// All files are opened, and their headers checked, when the folder is: a run does not fail hours later for a shard.
class SafetensorsFolder {
 public:
  struct Found {
    const Safetensors& file;
    SafetensorsEntry entry;
  };

  /// `path`: a .safetensors file; or a folder with model.safetensors, or else with model.safetensors.index.json, whose
  /// weight_map must name base names (SecurityError), files that are there, and for every tensor the file that holds
  /// it; no file may hold a tensor that the map gives to another. Tensors that the map does not know are not seen.
  /// Links: Note [Links in a folder of shards]. CheckpointError names all missing files.
  explicit SafetensorsFolder(const std::filesystem::path& path);

  const std::string& shown() const { return shown_; }
  const std::vector<Safetensors>& files() const { return files_; }

  /// Sorted, as long as this object lives.
  const std::vector<std::string_view>& names() const { return names_; }
  std::optional<Found> find(std::string_view tensor) const;
  /// The same for a tensor that must be there: CheckpointError otherwise.
  Found at(std::string_view tensor) const;
  /// Safetensors::read of the tensor.
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
