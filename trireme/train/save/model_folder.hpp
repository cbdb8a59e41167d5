#pragma once
// The files of a saved model folder besides its weights: those of the folder that training started from, with what
// changed.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/config/schema/config.hpp"
#include "trireme/config/translate/hf_config_write.hpp"
#include "trireme/data/tokenizer/tokenizer.hpp"

namespace trireme {

struct FolderFacts {
  const ModelConfig& model;
  std::string dtype;                                // of the weights, "bfloat16"
  const std::optional<data::Tokenizer>& tokenizer;  // for its token ids
  std::string tokenizer_path;                       // its files are copied from there
  std::filesystem::path source = {};                // the model folder that training started from; empty: none
  std::uintmax_t most_bytes = 256'000'000;          // of all files that are kept, which stay in memory during the run
};

/// The folder of model.init = "hf:FOLDER", else of model.hf; empty if there is none.
std::filesystem::path source_folder(const ModelConfig& model);

/// Why transformers could not load such a folder; empty if it can.
using config::what_transformers_lacks;

// Note [From folder to folder]: config.json is that of the source, and only keys whose value is another one now are set
// in it; without a source, or for another family, it is written anew. All other files of the source come along, except
// weights, subfolders and large files; but not those of its tokenizer if the run has another one, whose files then come
// from where it is, by the names by which a folder's tokenizer is found. A tokenizer without a tokenizer_config.json,
// as trained here, gets a small one.
using SmallFiles = std::vector<std::pair<std::string, std::string>>;  // names and contents

/// `warnings` tells what of the source is not kept, weights apart. DataError for a file that cannot be read: so ask
/// before training, not after it.
SmallFiles files_beside_weights(const FolderFacts& facts, std::vector<std::string>& warnings);

}  // namespace trireme
