#pragma once
// Which files of a model folder hold weights.
#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

namespace trireme::files {

/// By the name: weights of any framework, and the indexes of their shards.
inline bool is_of_weights(const std::filesystem::path& file) {
  constexpr std::array<std::string_view, 9> kEndings = {".safetensors", ".bin", ".pt",      ".pth", ".gguf",
                                                        ".h5",          ".ot",  ".msgpack", ".onnx"};
  return std::ranges::find(kEndings, file.extension().string()) != kEndings.end() ||
         file.filename().string().ends_with(".index.json") || file.filename() == "checkpoint_metadata.json";
}

}  // namespace trireme::files
