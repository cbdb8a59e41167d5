#pragma once
// Reader for one safetensors file: lists its tensors and gives zero-copy access to their bytes.
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

/// Throws CheckpointError if the file violates Note [What a safetensors header must be]. For files that change while
/// open see Note [Files that change while they are mapped].
class Safetensors {
 public:
  explicit Safetensors(const std::filesystem::path& path) : Safetensors(MappedFile(path)) {}
  explicit Safetensors(MappedFile file);

  const std::string& shown() const { return file_.shown(); }
  const SafetensorsHeader::Metadata& metadata() const { return header_.metadata(); }

  /// The tensors, in the order of their offsets; empty tensors in the order of the header.
  std::size_t size() const { return header_.size(); }
  SafetensorsEntry entry(std::size_t index) const { return header_.entry(index); }
  std::optional<SafetensorsEntry> find(std::string_view tensor) const;
  /// The same, but throws CheckpointError if the tensor does not exist.
  SafetensorsEntry at(std::string_view tensor) const;

  /// The bytes in the mapping. They may be unaligned: not every writer aligns them, so copy before reading numbers.
  std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;

  /// Copies the elements starts[d] <= index < starts[d] + sizes[d] of every dim d to `out`, in row-major order.
  /// CheckpointError for a box outside the tensor, and for dtypes smaller than a byte; InternalError if the size of
  /// `out` does not match the box.
  void read(const SafetensorsEntry& entry, std::span<const std::int64_t> starts, std::span<const std::int64_t> sizes,
            std::span<std::byte> out) const;

 private:
  InternalError not_of_this_file(const SafetensorsEntry& entry) const;

  MappedFile file_;
  SafetensorsHeader header_;
  std::span<const std::byte> data_;  // the bytes after the header
};

}  // namespace trireme::files
