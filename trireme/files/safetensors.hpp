#pragma once
// Reading one safetensors file: the tensors in it, and their bytes without a copy.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "trireme/base/error.hpp"
#include "trireme/files/mapped_file.hpp"
#include "trireme/files/safetensors_header.hpp"

namespace trireme::files {

/// Throws CheckpointError when the file is not as Note [What a safetensors header must be] says. What a mapping cannot
/// promise is in Note [Files that change while they are mapped].
class Safetensors {
 public:
  explicit Safetensors(const std::filesystem::path& path) : Safetensors(MappedFile(path)) {}
  explicit Safetensors(MappedFile file);

  const std::string& shown() const { return file_.shown(); }
  const SafetensorsHeader::Metadata& metadata() const { return header_.metadata(); }

  /// The tensors, in the order of their bytes; tensors without bytes in the order of the header.
  std::size_t size() const { return header_.size(); }
  SafetensorsEntry entry(std::size_t index) const { return header_.entry(index); }
  std::optional<SafetensorsEntry> find(std::string_view tensor) const;
  /// The same for a tensor that must be there: CheckpointError otherwise.
  SafetensorsEntry at(std::string_view tensor) const;

  /// The bytes in the mapping. They start anywhere: not every writer aligns them, so copy before reading numbers.
  std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;

  /// The elements starts[d] <= index < starts[d] + sizes[d] of every dim d, copied to `out` in the order of their
  /// indices. CheckpointError for a box that leaves the tensor, and for dtypes of less than a byte; InternalError when
  /// `out` has another size than the box.
  void read(const SafetensorsEntry& entry, std::span<const std::int64_t> starts, std::span<const std::int64_t> sizes,
            std::span<std::byte> out) const;

 private:
  InternalError not_of_this_file(const SafetensorsEntry& entry) const;

  MappedFile file_;
  SafetensorsHeader header_;
  std::span<const std::byte> data_;  // what follows the header
};

}  // namespace trireme::files
