#include "trireme/train/model_folder.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <sstream>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/config/foreign/hf_config.hpp"
#include "trireme/config/foreign/hf_config_write.hpp"
#include "trireme/config/schema/derive.hpp"
#include "trireme/data/tokenizer/chat.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 11> kTokenizerFiles = {"tokenizer.json",
                                                              "tokenizer_config.json",
                                                              "special_tokens_map.json",
                                                              "added_tokens.json",
                                                              "chat_template.json",
                                                              "chat_template.jinja",
                                                              "vocab.json",
                                                              "merges.txt",
                                                              "vocab.txt",
                                                              "tokenizer.model",
                                                              "generation_config.json"};  // the last one has token ids

// Larger files are weights, whatever they are called.
constexpr std::uintmax_t kMaxBytes = 100'000'000;

bool is_of_tokenizer(const fs::path& file) {
  return std::ranges::find(kTokenizerFiles, file.filename().string()) != kTokenizerFiles.end() ||
         file.extension() == ".tiktoken";
}

bool is_of_weights(const fs::path& file) {
  constexpr std::array<std::string_view, 9> kEndings = {".safetensors", ".bin", ".pt",      ".pth", ".gguf",
                                                        ".h5",          ".ot",  ".msgpack", ".onnx"};
  return std::ranges::find(kEndings, file.extension().string()) != kEndings.end() ||
         file.filename().string().ends_with(".index.json");
}

std::string contents_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  require<CheckpointError>(file.good() || file.eof(), path.string(), ": cannot be read, to be kept beside the weights");
  return out.str();
}

using Files = std::map<std::string, std::string>;

/// Adds the files of `folder` that `wanted` takes.
template <class Wanted>
void add_files(const fs::path& folder, const Wanted& wanted, Files& files) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const fs::path& path = entry.path();
    const std::string name = path.filename().string();
    if (!entry.is_regular_file() || name.starts_with('.') || is_of_weights(path) || name == "config.json") continue;
    if (wanted(path) && entry.file_size() <= kMaxBytes) files[name] = contents_of(path);
  }
}

/// Whether the tokenizer of the run is the one of the source.
bool is_tokenizer_of(const fs::path& source, const FolderFacts& facts) {
  if (!facts.tokenizer) return true;
  try {
    return data::Tokenizer::load(source).fingerprint() == facts.tokenizer->fingerprint();
  } catch (const DataError&) {  // it has none, or one that cannot be read here
    return false;
  }
}

/// Of a tokenizer that is not the source's. A file of another name than tokenizer.json stands among other things.
void add_tokenizer(const fs::path& path, Files& files) {
  if (fs::is_directory(path)) return add_files(path, is_of_tokenizer, files);
  if (path.filename() == "tokenizer.json") return add_files(path.parent_path(), is_of_tokenizer, files);
  if (path.extension() == ".json" && fs::is_regular_file(path)) files["tokenizer.json"] = contents_of(path);
}

bool speaks_chatml(const data::Tokenizer& tokenizer) {
  return data::is_special_token(tokenizer, "<|im_start|>") && data::is_special_token(tokenizer, "<|im_end|>");
}

/// The token that ends what a model says.
std::optional<data::TokenId> end_token(const data::Tokenizer& tokenizer) {
  return speaks_chatml(tokenizer) ? tokenizer.token_id("<|im_end|>") : tokenizer.end_of_document();
}

std::string small_tokenizer_config(const FolderFacts& facts) {
  Json json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
               {"model_max_length", facts.model.max_position_embeddings},
               {"clean_up_tokenization_spaces", false}};
  if (const auto end = end_token(*facts.tokenizer)) json["eos_token"] = facts.tokenizer->token_text(*end);
  if (speaks_chatml(*facts.tokenizer))
    json["chat_template"] =
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
        "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
  return json.dump(2) + "\n";
}

ModelConfig model_of(const fs::path& folder) {
  config::LoadedConfig loaded =
      config::load_settings("", "", config::read_hf_config(folder.string()).settings, config::Settings{});
  config::derive(loaded);
  return loaded.config.model;
}

/// config.json as we write it; plain RoPE has two names.
Json written(const ModelConfig& model, const std::string& dtype, const config::HfTokenIds& tokens = {}) {
  Json json = Json::parse(config::hf_config_json(model, dtype, tokens));
  if (json.contains("rope_scaling") && json["rope_scaling"]["rope_type"] == "default") json.erase("rope_scaling");
  return json;
}

/// `theirs` with the keys that differ between `before` and `now`, which are both written by us.
Json changed(Json theirs, const Json& before, const Json& now, const std::string& dtype) {
  const auto differs = [&](const std::string& key) {
    return before.contains(key) != now.contains(key) || (now.contains(key) && before[key] != now[key]);
  };
  for (const auto& [key, value] : now.items())
    if (differs(key)) theirs[key] = value;
  for (const auto& [key, value] : before.items())
    if (!now.contains(key)) theirs.erase(key);
  if (differs("rope_theta") || differs("rope_scaling"))
    theirs.erase("rope_parameters");  // transformers 5 has both there
  const bool named = theirs.contains("dtype") || theirs.contains("torch_dtype");
  for (const char* key : {"dtype", "torch_dtype"})
    if (!named || theirs.contains(key)) theirs[key] = dtype;
  return theirs;
}

std::string config_json(const FolderFacts& facts, bool own_tokenizer) {
  config::HfTokenIds tokens;
  if (facts.tokenizer && !own_tokenizer)
    if (const auto end = end_token(*facts.tokenizer)) tokens.eos = static_cast<std::int64_t>(*end);
  const std::string now = config::hf_config_json(facts.model, facts.dtype, tokens);
  const fs::path old = facts.source / "config.json";
  if (facts.source.empty() || !fs::is_regular_file(old)) return now;
  const ModelConfig before = model_of(facts.source);
  if (before.model_type != facts.model.model_type) return now;
  try {
    return changed(Json::parse(contents_of(old)), written(before, facts.dtype),
                   written(facts.model, facts.dtype, tokens), facts.dtype)
               .dump(2) +
           "\n";
  } catch (const ConfigError&) {  // a model that we cannot write: nothing to compare with
    return now;
  }
}

}  // namespace

fs::path source_folder(const ModelConfig& model) {
  fs::path folder = model.init.starts_with("hf:") ? model.init.substr(3) : model.hf;
  if (!folder.empty() && !fs::is_directory(folder)) folder = folder.parent_path();  // the config.json itself
  return folder;
}

std::string what_transformers_lacks(const ModelConfig& model, const std::string& dtype) {
  try {
    config::hf_config_json(model, dtype);
    return "";
  } catch (const ConfigError& e) {
    return e.what();
  }
}

SmallFiles files_beside_weights(const FolderFacts& facts) {
  Files files;
  const bool has_source = !facts.source.empty() && fs::is_directory(facts.source);
  const bool own = has_source && is_tokenizer_of(facts.source, facts);
  if (has_source) add_files(facts.source, [&](const fs::path& path) { return own || !is_of_tokenizer(path); }, files);
  if (!own && !facts.tokenizer_path.empty()) add_tokenizer(facts.tokenizer_path, files);
  if (facts.tokenizer && files.contains("tokenizer.json") && !files.contains("tokenizer_config.json"))
    files["tokenizer_config.json"] = small_tokenizer_config(facts);
  if (what_transformers_lacks(facts.model, facts.dtype).empty()) files["config.json"] = config_json(facts, own);
  return {files.begin(), files.end()};
}

}  // namespace trireme
