#pragma once
// Parser for model.safetensors.index.json: which file holds which tensor.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/files/text_blocks.hpp"

namespace trireme::files {

/// The names of a Hugging Face folder's files: all weights in one, or an index of several.
inline constexpr const char* kSafetensorsFile = "model.safetensors";
inline constexpr const char* kSafetensorsIndexFile = "model.safetensors.index.json";

inline constexpr std::size_t kMaxIndexTensors = 524'288, kMaxIndexFiles = 10'000;
inline constexpr int kMaxIndexDepth = 32;

struct SafetensorsIndex {
  struct Item {
    std::string_view tensor;  // points into texts
    std::uint32_t file;       // index into files
  };
  std::vector<std::string> files;  // in order of first occurrence in the index
  std::vector<Item> items;         // sorted by tensor
  TextBlocks texts;
};

/// Parses the JSON {"weight_map": {tensor: file}, ...}; other keys are ignored. SecurityError for a file that is not a
/// base name; CheckpointError for all other errors; `shown` is the name for messages. Memory is bounded as in Note
/// [Memory of a header], time by Note [Bounds of JSON].
SafetensorsIndex parse_safetensors_index(std::string_view json, const std::string& shown);

}  // namespace trireme::files
