#include "trireme/inference/opened_model.hpp"

#include <algorithm>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/base/with_fix.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/checkpoint/sources/own_source.hpp"
#include "trireme/data/tokenizer/chat.hpp"

namespace trireme {
namespace {

/// "eos_token_id" of a JSON file beside the weights; empty if it has none.
std::vector<data::TokenId> end_tokens_in(const checkpoint::FilesBeside& files, const std::string& name) {
  const auto file = files.find(name);
  if (file == files.end()) return {};
  const nlohmann::json json = nlohmann::json::parse(file->second, nullptr, /*allow_exceptions=*/false);
  const nlohmann::json ids = json.is_object() ? json.value("eos_token_id", nlohmann::json()) : nlohmann::json();
  std::vector<data::TokenId> out;
  for (const nlohmann::json& id : ids.is_array() ? ids : nlohmann::json::array({ids}))
    if (id.is_number_unsigned()) out.push_back(id.get<data::TokenId>());
  return out;
}

constexpr const char* kBytes = "bytes";

std::string value_or_empty(const std::map<std::string, std::string>& values, const std::string& key) {
  const auto found = values.find(key);
  return found == values.end() ? "" : found->second;
}

std::string in_quotes(const std::string& word) { return text('"', word, '"'); }

std::string shown(const data::Tokenizer& tokenizer) {
  return text(tokenizer.name(), ", fingerprint ", tokenizer.fingerprint());
}

}  // namespace

std::int64_t OpenedModel::seq_len() const {
  const std::string given = value_or_empty(run, "training.seq_len");
  return given.empty() ? 0 : std::strtoll(given.c_str(), nullptr, 10);
}

DataStage OpenedModel::data_scopes() const {
  DataStage stage;
  for (const char* scope : {"document", "sample"}) {
    if (value_or_empty(run, "data.0.attention") == in_quotes(scope)) stage.attention = scope;
    if (value_or_empty(run, "data.0.positions") == in_quotes(scope)) stage.positions = scope;
  }
  for (const char* packing : {"cut", "whole"})
    if (value_or_empty(run, "data.0.packing") == in_quotes(packing)) stage.packing = packing;
  return stage;
}

std::string OpenedModel::tokenizer_path(const std::string& asked) const {
  if (!asked.empty()) return asked;
  if (data::tokenizer_file_in(path)) return path.string();
  return value_or_empty(run, "tokenizer.path") == in_quotes(kBytes) ? kBytes : "";
}

data::Tokenizer OpenedModel::tokenizer(const std::string& asked) const {
  return with_fix("-t TOKENIZER, the one that the model was trained with", [&] { return found_tokenizer(asked); });
}

data::Tokenizer OpenedModel::found_tokenizer(const std::string& asked) const {
  const std::string own_path = tokenizer_path(), wanted = tokenizer_path(asked);
  require<DataError>(!wanted.empty(), path.string(), ": has no tokenizer",
                     "\n  fix: -t TOKENIZER, the one that the model was trained with");
  data::Tokenizer found = data::Tokenizer::load(wanted);
  const std::string other = text("-t ", asked, " is not the model's tokenizer: it is ", shown(found));
  if (!asked.empty() && !own_path.empty()) {
    std::optional<data::Tokenizer> own;
    try {
      own = data::Tokenizer::load(own_path);
    } catch (const DataError&) {  // of a kind that is not supported: -t is how to do without it
    }
    require<DataError>(!own || own->fingerprint() == found.fingerprint(), other, "; the model has ",
                       own ? shown(*own) : "", "\n  fix: leave -t out");
  }
  require<DataError>(asked.empty() || run_tokenizer.empty() || run_tokenizer == found.fingerprint(), other,
                     "; the model was trained with one of fingerprint ", run_tokenizer,
                     "\n  fix: -t TOKENIZER, the one that the model was trained with");
  require<ConfigError>(found.vocab_size() <= source->model().vocab_size, "the tokenizer ", found.name(), " has ",
                       found.vocab_size(), " tokens, the model a vocabulary of ", source->model().vocab_size,
                       "\n  fix: -t TOKENIZER, the one that the model was trained with");
  return found;
}

std::vector<data::TokenId> OpenedModel::end_tokens(const data::Tokenizer& tokenizer) const {
  for (const char* name : {"generation_config.json", "config.json"})
    if (std::vector<data::TokenId> found = end_tokens_in(source->files(), name); !found.empty()) return found;
  std::vector<data::TokenId> ends;
  if (const std::optional<data::TokenId> end = tokenizer.end_of_document()) ends.push_back(*end);
  if (data::is_special_token(tokenizer, "<|im_end|>"))
    if (const auto turn = tokenizer.token_id("<|im_end|>"); turn && std::ranges::find(ends, *turn) == ends.end())
      ends.push_back(*turn);
  return ends;
}

OpenedModel open_trained_model(const std::filesystem::path& path) {
  OpenedModel model{.path = path, .source = checkpoint::open_model(path)};
  if (!checkpoint::is_own_checkpoint(path)) return model;
  const checkpoint::Reader reader(path);
  model.run = reader.manifest().config;
  model.run_tokenizer = value_or_empty(reader.manifest().training.data, "tokenizer");
  return model;
}

}  // namespace trireme
