#pragma once
// Streaming writer for one safetensors file: one tensor after the other, without holding a whole tensor in memory.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/files/safetensors_header.hpp"
#include "trireme/files/staged_files.hpp"

namespace trireme::files {

/// A tensor to be written.
struct SafetensorsTensor {
  std::string name;
  SafetensorsDtype dtype = SafetensorsDtype::F32;
  std::vector<std::int64_t> shape;
};

/// InternalError for an invalid shape: negative, above 2^63 - 1 bits, or not a whole number of bytes.
std::uint64_t bytes_of(const SafetensorsTensor& tensor);

/// {"format": "pt"}: transformers rejects files without the framework of their tensors.
SafetensorsHeader::Metadata pytorch_metadata();

/// The length and the JSON, padded with spaces so that the tensor data begins at a multiple of 8. InternalError, with
/// the tensor, for anything that our own reader would reject (Note [What a safetensors header must be]): an invalid or
/// duplicate name, an invalid shape. `shown` is the file name for messages.
std::string safetensors_header(std::span<const SafetensorsTensor> tensors, const SafetensorsHeader::Metadata& metadata,
                               const std::string& shown);

// Writes to a staged file, so the file appears atomically: call StagedFiles::publish() after finish(). Tensors are laid
// out in the given order; with several dtypes, putting larger ones first keeps the others aligned as well.
class SafetensorsWriter {
 public:
  /// Writes the header; InternalError as in safetensors_header(). `file` must outlive this.
  SafetensorsWriter(StagedFile& file, std::vector<SafetensorsTensor> tensors,
                    const SafetensorsHeader::Metadata& metadata = pytorch_metadata());

  /// Appends any number of bytes to this tensor. InternalError, with the tensor, if it is out of order, if the previous
  /// one is incomplete, or if there are too many bytes. Disk errors are those of StagedFile.
  void append(std::string_view tensor, std::span<const std::byte> bytes);

  /// InternalError if a tensor is incomplete. Afterwards everything is on disk.
  void finish();

 private:
  InternalError lacks_bytes(const std::string& what) const;

  StagedFile& file_;
  std::vector<SafetensorsTensor> tensors_;
  std::size_t current_ = 0;
  std::uint64_t wanted_ = 0, written_ = 0;  // bytes of the current tensor
};

}  // namespace trireme::files
