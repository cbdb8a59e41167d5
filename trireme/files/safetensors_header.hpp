#pragma once
// The header of a safetensors file: what is in it, checked before anything is believed.
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
  std::string_view name;  // as long as the file is open
  SafetensorsDtype dtype = SafetensorsDtype::U8;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // its bytes, counted from the first byte after the header
};

// Note [What a safetensors header must be]
//   8 bytes, little-endian: the header's length, at most 100 MB and within the file; then JSON, first of all a `{`:
//   {"__metadata__": {text: text}, name: {"dtype": text, "shape": [sizes], "data_offsets": [begin, end]}, ...}
// and then spaces up to the length. The tensors tile the rest of the file: no holes, no overlap, no bytes left.
//
// Stricter than the reference (the package `safetensors`), each with a text of its own:
//   - a key given twice: tensors, keys of a tensor, keys of __metadata__, __metadata__ itself
//   - a key of a tensor other than the three; a tensor that is a list; a dtype that is an object; __metadata__ that is
//   null
//   - a name that is empty, longer than 4096 bytes, has control characters, starts with / or has a part `..`: names
//     become paths in other formats, and lines on a terminal
//   - numbers above 2^63 - 1; sizes whose product overflows in any order, also where one of them is 0
//   - more than 64 sizes, 262,144 tensors, 16,384 keys of metadata; what Note [Bounds of JSON] says, without the spaces
//     at the end: memory and time stay in bounds
//   - white space other than spaces after the JSON; a header that does not start with `{`
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::size_t kMaxTensors = 262'144, kMaxSizes = 64, kMaxNameBytes = 4096, kMaxMetadataKeys = 16'384;

/// What is wrong with a tensor's name, or nullptr.
const char* fault_of_tensor_name(std::string_view name);

// Note [Memory of a header]: opening a file allocates at most its size + 16 MiB. A tensor is kept in 48
// bytes (its shortest text has 52), and its name and sizes in as many as in the text, in blocks that do not move.
class SafetensorsHeader {
 public:
  using Metadata = std::map<std::string, std::string, std::less<>>;

  /// `data_bytes`: what the file holds after the header. Throws CheckpointError; `file` stands for it in messages.
  SafetensorsHeader(std::string_view header, std::uint64_t data_bytes, const std::string& file);

  const Metadata& metadata() const { return metadata_; }
  std::size_t size() const { return records_.size(); }
  /// In the order of their bytes; tensors without bytes in the order of the header.
  SafetensorsEntry entry(std::size_t index) const;
  std::optional<std::size_t> find(std::string_view tensor) const;

 private:
  class Reader;  // of the JSON
  struct Record {
    std::uint64_t begin, end;
    const char* text;  // the name, then the sizes, 7 bits a byte
    std::uint16_t name_bytes;
    std::uint8_t num_sizes;
    SafetensorsDtype dtype;
    std::uint32_t order;  // in the header
    std::string_view name() const { return {text, name_bytes}; }
  };
  struct Hashed {
    std::uint64_t hash;
    std::uint32_t record;
  };

  void index_names(const std::string& file);  // puts the records in the order of their bytes, too
  void check_tiling(std::uint64_t data_bytes, const std::string& file) const;

  Metadata metadata_;
  std::vector<Record> records_;
  TextBlocks texts_;
  std::vector<Hashed> by_hash_;
};

}  // namespace trireme::files
