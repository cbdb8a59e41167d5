#pragma once
// The header of a safetensors file, fully validated before any of it is used.
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/files/safetensors_dtype.hpp"
#include "trireme/files/text_blocks.hpp"

namespace trireme::files {

/// A tensor of a file.
struct SafetensorsEntry {
  std::string_view name;  // valid while the file is open
  SafetensorsDtype dtype = SafetensorsDtype::U8;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // byte offsets, counted from the end of the header
};

// Note [What a safetensors header must be]
//   8 bytes, little-endian: the header's length, at most 100 MB and within the file; then JSON that starts with `{`:
//   {"__metadata__": {text: text}, name: {"dtype": text, "shape": [sizes], "data_offsets": [begin, end]}, ...}
// then spaces up to the length. The tensors tile the rest of the file: no gaps, no overlap, no trailing bytes.
//
// Stricter than the reference (the package `safetensors`); each of these has its own error message:
//   - duplicate keys: tensors, keys of a tensor, keys of __metadata__, __metadata__ itself
//   - a key of a tensor other than the three; a tensor that is a list; a dtype that is an object; __metadata__ that is
//     null
//   - a name that is empty, longer than 4096 bytes, has control characters, starts with / or has a component `..`:
//     names become paths in other formats, and are printed on terminals
//   - numbers above 2^63 - 1; sizes whose product overflows in any order, even if one of them is 0
//   - more than 64 sizes, 262,144 tensors, 16,384 keys of metadata; the limits of Note [Bounds of JSON], not counting
//     the trailing spaces: these bound memory and time
//   - white space other than spaces after the JSON; a header that does not start with `{`
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::size_t kMaxTensors = 262'144, kMaxSizes = 64, kMaxNameBytes = 4096, kMaxMetadataKeys = 16'384;

/// The reason why a tensor name is invalid, or nullptr.
const char* fault_of_tensor_name(std::string_view name);

// Note [Memory of a header]: opening a file allocates at most its size + 16 MiB. A tensor is stored in 48 bytes (its
// shortest JSON text has 52), and its name and sizes in at most as many bytes as in the JSON, in blocks that do not
// move.
class SafetensorsHeader {
 public:
  using Metadata = std::map<std::string, std::string, std::less<>>;

  /// `data_bytes`: the size of the file after the header. Throws CheckpointError; `file` is the name for messages.
  SafetensorsHeader(std::string_view header, std::uint64_t data_bytes, const std::string& file);

  const Metadata& metadata() const { return metadata_; }
  std::size_t size() const { return records_.size(); }
  /// In the order of the offsets; empty tensors in the order of the header.
  SafetensorsEntry entry(std::size_t index) const;
  std::optional<std::size_t> find(std::string_view tensor) const;

 private:
  class Reader;  // JSON event handler
  struct Record {
    std::uint64_t begin, end;
    const char* text;  // the name, then the sizes, 7 bits per byte
    std::uint16_t name_bytes;
    std::uint8_t num_sizes;
    SafetensorsDtype dtype;
    std::uint32_t order;  // position in the header
    std::string_view name() const { return {text, name_bytes}; }
  };
  struct Hashed {
    std::uint64_t hash;
    std::uint32_t record;
  };

  void index_names(const std::string& file);  // also sorts the records by offset
  void check_tiling(std::uint64_t data_bytes, const std::string& file) const;

  Metadata metadata_;
  std::vector<Record> records_;
  TextBlocks texts_;
  std::vector<Hashed> by_hash_;
};

}  // namespace trireme::files
