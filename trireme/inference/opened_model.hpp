#pragma once
// A trained model as a user names it: its weights, its tokenizer, and the tokens that end a text.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/checkpoint/model_source.hpp"
#include "trireme/data/tokenizer/tokenizer.hpp"

namespace trireme {

struct OpenedModel {
  std::filesystem::path path;  // of the checkpoint
  std::unique_ptr<checkpoint::ModelSource> source;

  /// The one in the checkpoint's folder, or the one that the run was given ("bytes"). DataError if there is none.
  data::Tokenizer tokenizer() const;
  /// training.seq_len of the run; 0: it is no checkpoint of ours.
  std::int64_t seq_len() const;
  /// eos_token_id of generation_config.json or config.json, one or several; else the tokenizer's end of a document.
  std::vector<data::TokenId> end_tokens(const data::Tokenizer& tokenizer) const;
};

/// A checkpoint of ours or nanotron's, or a Hugging Face folder.
OpenedModel open_trained_model(const std::filesystem::path& path);

}  // namespace trireme
