#include "trireme/inference/opened_model.hpp"

#include <cstdlib>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/reader.hpp"

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

/// Of a checkpoint of ours, in TOML's syntax; empty for others.
std::string setting_of_run(const std::filesystem::path& path, const std::string& key) {
  if (!std::filesystem::exists(path / "checkpoint_metadata.json")) return "";
  const checkpoint::Reader reader(path);
  const auto given = reader.manifest().config.find(key);
  return given == reader.manifest().config.end() ? "" : given->second;
}

}  // namespace

std::int64_t OpenedModel::seq_len() const {
  const std::string given = setting_of_run(path, "training.seq_len");
  return given.empty() ? 0 : std::strtoll(given.c_str(), nullptr, 10);
}

data::Tokenizer OpenedModel::tokenizer() const {
  std::string reason;
  try {
    return data::Tokenizer::load(path);
  } catch (const DataError& e) {
    reason = e.what();
  }
  if (setting_of_run(path, "tokenizer.path") == "\"bytes\"") return data::Tokenizer::load("bytes");
  throw DataError(text(reason, "\n  fix: -t TOKENIZER, the one that the model was trained with"));
}

std::vector<data::TokenId> OpenedModel::end_tokens(const data::Tokenizer& tokenizer) const {
  for (const char* name : {"generation_config.json", "config.json"})
    if (std::vector<data::TokenId> found = end_tokens_in(source->files(), name); !found.empty()) return found;
  const std::optional<data::TokenId> end = tokenizer.end_of_document();
  return end ? std::vector{*end} : std::vector<data::TokenId>();
}

OpenedModel open_trained_model(const std::filesystem::path& path) {
  return {.path = path, .source = checkpoint::open_model(path)};
}

}  // namespace trireme
