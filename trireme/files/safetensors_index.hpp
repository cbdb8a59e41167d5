#pragma once
// model.safetensors.index.json: which file holds which tensor.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/files/text_blocks.hpp"

namespace trireme::files {

inline constexpr std::size_t kMaxIndexTensors = 524'288, kMaxIndexFiles = 10'000;
inline constexpr int kMaxIndexDepth = 32;

struct SafetensorsIndex {
  struct Item {
    std::string_view tensor;  // in texts
    std::uint32_t file;       // of files
  };
  std::vector<std::string> files;  // in the order in which the index first names them
  std::vector<Item> items;         // by tensor
  TextBlocks texts;
};

/// Reads the JSON {"weight_map": {tensor: file}, ...}; everything else in it is passed over. SecurityError for a file
/// that is not a base name; CheckpointError for everything else that is wrong, with `shown` for the index. Memory is
/// bounded as in Note [Memory of a header], time by Note [Bounds of JSON].
SafetensorsIndex parse_safetensors_index(std::string_view json, const std::string& shown);

}  // namespace trireme::files
