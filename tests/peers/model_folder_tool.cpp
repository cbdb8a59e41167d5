// Writes the files of a saved model folder for every family: model_folder_tool OUT TOKENIZER
#include <fstream>
#include <iostream>

#include "trireme/config/read/derive.hpp"
#include "trireme/config/read/parse.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/train/save/model_folder.hpp"

int main(int argc, char** argv) try {
  using namespace trireme;
  if (argc != 3) return 2;
  const std::optional<data::Tokenizer> tokenizer = data::Tokenizer::load(argv[2]);
  for (const std::string& family : config::family_names()) {
    config::LoadedConfig loaded;
    ModelConfig& model = loaded.config.model;
    model.model_type = family;
    model.hidden_size = 32;
    model.num_hidden_layers = 1;
    model.num_attention_heads = 2;
    model.intermediate_size = 64;
    model.vocab_size = tokenizer->vocab_size();
    model.qk_norm = config::family_of(model).hf.has_qk_norm;
    if (config::family_of(model).hf.experts != config::HfExperts::none) model.num_local_experts = 2;
    config::derive(loaded);
    std::vector<std::string> warnings;
    const std::filesystem::path folder = std::filesystem::path(argv[1]) / family;
    std::filesystem::create_directories(folder);
    for (const auto& [name, contents] : files_beside_weights(
             {.model = model, .dtype = "float32", .tokenizer = tokenizer, .tokenizer_path = argv[2]}, warnings))
      std::ofstream(folder / name) << contents;
    std::cout << family << "\n";
  }
  return 0;
} catch (const std::exception& e) {
  std::cerr << e.what() << "\n";
  return 1;
}
