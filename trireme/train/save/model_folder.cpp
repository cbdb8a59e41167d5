#include "trireme/train/save/model_folder.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/checkpoint/format/exported_files.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/config/read/hf_model.hpp"
#include "trireme/config/translate/hf_config_write.hpp"
#include "trireme/data/tokenizer/chat.hpp"
#include "trireme/files/weights_files.hpp"
#include "trireme/files/whole_file.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using data::is_sentencepiece_file;
using files::is_of_weights;
using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 5> kVocabularies = {"tokenizer.json", "vocab.json", "merges.txt", "vocab.txt",
                                                           "tekken.json"};
constexpr std::array<std::string_view, 6> kBesideVocabulary = {
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.json",    "chat_template.jinja",     "generation_config.json"};  // the last one has token ids

constexpr std::uintmax_t kMaxBytes = 100'000'000;  // of one file

bool is_beside_vocabulary(const fs::path& file) {
  return std::ranges::find(kBesideVocabulary, file.filename().string()) != kBesideVocabulary.end();
}

bool is_of_tokenizer(const fs::path& file) {
  return is_beside_vocabulary(file) || file.extension() == ".tiktoken" || is_sentencepiece_file(file) ||
         std::ranges::find(kVocabularies, file.filename().string()) != kVocabularies.end();
}

/// Of the checkpoint that a source may be: what is true of that one only.
bool is_of_checkpoint(const fs::path& file) {
  const std::string name = file.filename().string();
  return checkpoint::is_rank_file(name) || name == checkpoint::kExportListName;
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

std::string contents_of(const fs::path& path) {
  return files::whole_file(path, kMaxBytes, "a file that is kept beside the weights");
}

using Files = std::map<std::string, std::string>;
using Names = std::vector<std::string>;

/// Files that are to be kept, as far as there is room.
class FilesToKeep {
 public:
  FilesToKeep(std::uintmax_t room, Names& not_kept) : room_(room), not_kept_(not_kept) {}

  /// The files of `folder` that `wanted` takes.
  template <class Wanted>
  void add_folder(const fs::path& folder, const Wanted& wanted) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      const fs::path& path = entry.path();
      const bool is_own =
          is_hidden(path) || is_of_weights(path) || is_of_checkpoint(path) || path.filename() == "config.json";
      if (!is_own && entry.is_regular_file() && wanted(path)) add_file(path, path.filename().string());
    }
  }

  void add_file(const fs::path& path, const std::string& name) { found_.push_back({path, name, fs::file_size(path)}); }

  /// The tokenizer first, without which the weights are of no use; then the largest are left out.
  void read(Files& files) {
    std::ranges::sort(found_, [](const Found& a, const Found& b) {
      return std::tuple(!is_of_tokenizer(a.name), a.bytes, a.name) <
             std::tuple(!is_of_tokenizer(b.name), b.bytes, b.name);
    });
    for (const auto& [path, name, bytes] : found_) {
      if (bytes > kMaxBytes || bytes > room_) {
        not_kept_.push_back(text(path.string(), " (", human_bytes(static_cast<double>(bytes)), ")"));
        continue;
      }
      room_ -= bytes;
      files[name] = contents_of(path);
    }
  }

 private:
  struct Found {
    fs::path path;
    std::string name;  // that it gets
    std::uintmax_t bytes;
  };
  std::vector<Found> found_;
  std::uintmax_t room_;
  Names& not_kept_;
};

bool holds_only_weights(const fs::path& folder) {
  std::error_code error, unknown;
  fs::recursive_directory_iterator entries(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && entries != fs::recursive_directory_iterator(); entries.increment(error))
    if (entries->is_regular_file(unknown) && !is_hidden(entries->path()) && !is_of_weights(entries->path()))
      return false;
  return true;
}

void name_subfolders(const fs::path& folder, Names& not_kept) {
  std::error_code error;
  Names found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (entry.is_directory() && !is_hidden(entry.path()) && !holds_only_weights(entry.path()))
      found.push_back(entry.path().string() + "/");
  std::ranges::sort(found);
  not_kept.insert(not_kept.end(), found.begin(), found.end());
}

std::string shown_not_kept(const FolderFacts& facts, const Names& not_kept) {
  constexpr std::size_t kNamed = 5;
  std::string names;
  for (std::size_t i = 0; i < std::min(not_kept.size(), kNamed); ++i) names += (i > 0 ? ", " : "") + not_kept[i];
  if (not_kept.size() > kNamed) names += text(" and ", not_kept.size() - kNamed, " more");
  return text("will not be copied to the saved weights: ", names, " (no subfolders, files of at most ",
              human_bytes(static_cast<double>(kMaxBytes)), ", at most ",
              human_bytes(static_cast<double>(facts.most_bytes)), " in all); copy what is needed yourself");
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

/// The name by which the kind of a tokenizer's file is found in a folder; a .tiktoken file's own name says what it is.
std::string name_in_folder(const fs::path& path) {
  if (is_sentencepiece_file(path)) return "tokenizer.model";
  if (path.extension() != ".json" || path.filename() == "vocab.json") return path.filename().string();
  return path.filename().string().find("tekken") != std::string::npos ? "tekken.json" : "tokenizer.json";
}

/// Of a tokenizer that is not the source's. A file of another name than usual stands among other things.
void add_tokenizer(const fs::path& path, FilesToKeep& to_keep) {
  if (fs::is_directory(path)) return to_keep.add_folder(path, is_of_tokenizer);
  if (path.filename() == "tokenizer.json") return to_keep.add_folder(path.parent_path(), is_of_tokenizer);
  if (!fs::is_regular_file(path)) return;  // "bytes"
  const std::string name = name_in_folder(path);
  to_keep.add_file(path, name);
  if (path.filename() != name) return;
  // A tokenizer.json beside it would be found first, and is another tokenizer.
  to_keep.add_folder(path.parent_path(), [&](const fs::path& file) {
    return is_beside_vocabulary(file) || (name == "vocab.json" && file.filename() == "merges.txt");
  });
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

// Note [The tokenizer that transformers takes]: AutoTokenizer of transformers 5 trusts tokenizer_class, except for some
// families, whose own class it takes instead, with that family's way to cut text; only a LlamaTokenizer whose file has
// bytes as its alphabet is read as the file says. transformers 4 reads all of these as the file says.
// tests/peers/exported_tokenizers_agree.py compares them for every family.
bool has_own_class_always(const std::string& model_type) { return model_type == "qwen2"; }

std::string for_auto_tokenizer(const std::string& tokenizer_config, const std::string& model_type) {
  Json json = Json::parse(tokenizer_config, nullptr, /*allow_exceptions=*/false);
  if (!has_own_class_always(model_type) || !json.is_object()) return tokenizer_config;
  const std::string kind = json.contains("tokenizer_class") && json["tokenizer_class"].is_string()
                               ? json["tokenizer_class"].get<std::string>()
                               : "";
  if (kind.starts_with("Qwen2Tokenizer")) return tokenizer_config;
  json["tokenizer_class"] = "LlamaTokenizerFast";
  // Not the tokens that a Llama has by default.
  for (const char* token : {"bos_token", "eos_token", "unk_token", "pad_token"})
    if (!json.contains(token)) json[token] = nullptr;
  if (!json.contains("add_bos_token") && json["bos_token"].is_null()) json["add_bos_token"] = false;
  return json.dump(2) + "\n";
}

ModelConfig model_of(const fs::path& folder) {
  return config::model_of_hf_config((folder / "config.json").string(), config::read_hf_config(folder.string()));
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

SmallFiles files_beside_weights(const FolderFacts& facts, std::vector<std::string>& warnings) {
  Files files;
  Names not_kept;
  FilesToKeep to_keep(facts.most_bytes, not_kept);
  const bool has_source = !facts.source.empty() && fs::is_directory(facts.source);
  const bool own = has_source && is_tokenizer_of(facts.source, facts);
  if (has_source) to_keep.add_folder(facts.source, [&](const fs::path& path) { return own || !is_of_tokenizer(path); });
  if (!own && !facts.tokenizer_path.empty()) add_tokenizer(facts.tokenizer_path, to_keep);
  to_keep.read(files);
  if (has_source) name_subfolders(facts.source, not_kept);
  if (!not_kept.empty()) warnings.push_back(shown_not_kept(facts, not_kept));
  if (facts.tokenizer && files.contains("tokenizer.json") && !files.contains("tokenizer_config.json"))
    files["tokenizer_config.json"] = small_tokenizer_config(facts);
  if (const auto file = files.find("tokenizer_config.json"); !own && file != files.end())
    file->second = for_auto_tokenizer(file->second, facts.model.model_type);
  if (config::what_transformers_lacks(facts.model, facts.dtype).empty()) files["config.json"] = config_json(facts, own);
  SmallFiles out;
  for (auto& [name, bytes] : files) out.emplace_back(name, std::move(bytes));
  return out;
}

}  // namespace trireme
