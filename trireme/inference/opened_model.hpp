#pragma once
// A trained model as a user names it: its weights, its tokenizer, and the tokens that end a text.
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/checkpoint/sources/model_source.hpp"
#include "trireme/config/schema/config.hpp"
#include "trireme/data/tokenizer/tokenizer.hpp"

namespace trireme {

struct OpenedModel {
  std::filesystem::path path;  // of the checkpoint
  std::unique_ptr<checkpoint::ModelSource> source;
  /// Of a checkpoint of ours: the config of its run, key by key in TOML's syntax; empty for others.
  std::map<std::string, std::string> run = {};
  std::string run_tokenizer = {};  // fingerprint of the tokenizer that the run was trained with; empty: not known

  /// `asked`: by the user, empty: the one in the checkpoint's folder, or the one that the run was given ("bytes").
  /// DataError if there is none, or if `asked` is another one than the model's; ConfigError if it has more tokens than
  /// the model.
  data::Tokenizer tokenizer(const std::string& asked = "") const;
  /// What `asked` means, as a path; "" if nothing is asked and the model has no tokenizer.
  std::string tokenizer_path(const std::string& asked = "") const;
  /// training.seq_len of the run; 0: it is no checkpoint of ours.
  std::int64_t seq_len() const;
  /// attention, positions and packing of the run's first data stage; "auto" where they are not known.
  DataStage data_scopes() const;
  /// eos_token_id of generation_config.json or config.json, one or several; else the tokenizer's end of a document, and
  /// of a turn.
  std::vector<data::TokenId> end_tokens(const data::Tokenizer& tokenizer) const;

 private:
  data::Tokenizer found_tokenizer(const std::string& asked) const;
};

/// A checkpoint of ours or nanotron's, or a Hugging Face folder.
OpenedModel open_trained_model(const std::filesystem::path& path);

}  // namespace trireme
