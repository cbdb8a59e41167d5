#pragma once
// Writing one safetensors file, tensor after tensor, without ever holding one.
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

/// A tensor that will be written.
struct SafetensorsTensor {
  std::string name;
  SafetensorsDtype dtype = SafetensorsDtype::F32;
  std::vector<std::int64_t> shape;
};

/// InternalError for a shape that cannot be: negative, beyond 2^63 - 1 bits, or of bits that do not fill whole bytes.
std::uint64_t bytes_of(const SafetensorsTensor& tensor);

/// {"format": "pt"}: transformers refuses files that do not say whose tensors they hold.
SafetensorsHeader::Metadata pytorch_metadata();

/// What stands before the tensors' bytes: the length and the JSON, filled up with spaces so that the bytes begin at a
/// multiple of 8. InternalError, with the tensor, for whatever our own reader would refuse (Note [What a safetensors header
/// must be]): a name that is bad or given twice, a shape that cannot be. `shown` stands for the file in messages.
std::string safetensors_header(std::span<const SafetensorsTensor> tensors, const SafetensorsHeader::Metadata& metadata,
                               const std::string& shown);

// Bytes go to a staged file, so the file appears whole or not at all: StagedFiles::publish() after finish(). Tensors lie
// in the order in which they are given; with several dtypes, larger ones first keep the others aligned as well.
class SafetensorsWriter {
 public:
  /// Writes the header; InternalError as safetensors_header(). `file` outlives this.
  SafetensorsWriter(StagedFile& file, std::vector<SafetensorsTensor> tensors,
                    const SafetensorsHeader::Metadata& metadata = pytorch_metadata());

  /// The next bytes of that tensor, any number of them. InternalError, with the tensor, when it is not its turn, when the
  /// one before it lacks bytes, and when it has them all. Errors of the disk are StagedFile's.
  void append(std::string_view tensor, std::span<const std::byte> bytes);

  /// InternalError when a tensor lacks bytes. Everything is on the disk then.
  void finish();

 private:
  InternalError lacks_bytes(const std::string& what) const;

  StagedFile& file_;
  std::vector<SafetensorsTensor> tensors_;
  std::size_t current_ = 0;
  std::uint64_t wanted_ = 0, written_ = 0;  // bytes of the current tensor
};

}  // namespace trireme::files
