// Writes a model folder in Hugging Face's format, for hf_folder_agrees.py to load with the packages.
//   usage: hf_folder_tool; on standard input, one line per folder, separated by tabs:
//   FOLDER MAX_SHARD_BYTES DTYPE WEIGHTS [--model.KEY=VALUE...]
// WEIGHTS holds the concatenated bytes of the tensors; WEIGHTS.txt has one line per tensor: name, dtype, sizes,
// separated by tabs.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/config/read/derive.hpp"
#include "trireme/config/read/parse.hpp"
#include "trireme/config/translate/hf_config_write.hpp"
#include "trireme/files/safetensors_folder_write.hpp"

namespace {

using namespace trireme;

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream in(line);
  for (std::string word; std::getline(in, word, '\t');) words.push_back(word);
  return words;
}

std::vector<files::SafetensorsTensor> read_list(const std::string& path) {
  std::vector<files::SafetensorsTensor> tensors;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string> words = split(line);
    files::SafetensorsTensor tensor{words.at(0), files::safetensors_dtype(words.at(1)).value(), {}};
    for (std::size_t i = 2; i < words.size(); ++i) tensor.shape.push_back(std::stoll(words[i]));
    tensors.push_back(tensor);
  }
  return tensors;
}

ModelConfig model_of(const std::vector<std::string>& flags) {
  config::LoadedConfig loaded = config::load_config_text("", "", flags);
  require(loaded.violations.empty(), "the flags are not a model's");
  config::derive(loaded);
  return loaded.config.model;
}

void write(const std::vector<std::string>& words) {
  const std::vector<files::SafetensorsTensor> tensors = read_list(words.at(3) + ".txt");
  std::ifstream weights(words.at(3), std::ios::binary);
  files::SafetensorsFolderWriter writer(words.at(0), tensors, std::stoull(words.at(1)));
  std::vector<char> piece;
  for (const files::SafetensorsTensor& tensor : tensors) {
    std::uint64_t left = files::bytes_of(tensor);
    for (std::uint64_t size = 1; left > 0; size = size * 3 + 1) {  // of different sizes
      piece.resize(std::min(left, size));
      weights.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      require(weights.good(), words.at(3), " is too short");
      writer.append(tensor.name, std::as_bytes(std::span(piece)));
      left -= piece.size();
    }
  }
  writer.add_file("config.json",
                  config::hf_config_json(model_of({words.begin() + 4, words.end()}), words.at(2), {1, 2, {}}));
  writer.publish();
}

}  // namespace

int main() {
  try {
    for (std::string line; std::getline(std::cin, line);) write(split(line));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "hf_folder_tool: " << error.what() << "\n";
    return 1;
  }
}
