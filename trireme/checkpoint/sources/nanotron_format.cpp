#include "trireme/checkpoint/sources/nanotron_format.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/describe/parameters.hpp"
#include "trireme/files/json_bounds.hpp"

namespace trireme::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kNameBegin = "model_", kNameEnd = ".safetensors";

/// The fields that mean the same in a config.json.
constexpr std::array kSameFields = {
    "hidden_act",          "hidden_size",       "initializer_range",   "intermediate_size", "max_position_embeddings",
    "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "rms_norm_eps",      "rope_theta",
    "tie_word_embeddings", "vocab_size",        "bos_token_id",        "eos_token_id",      "pad_token_id"};
/// Of the implementation, or of training: they do not change what the model computes.
constexpr std::array kHarmless = {"pretraining_tp",      "use_cache",      "is_llama_config",
                                  "is_qwen2_config",     "z_loss_enabled", "z_loss_coefficient",
                                  "flex_attention_mask", "attention_bias", "rope_scaling"};

/// "NAME-R-of-N" at the front of `words`, which is shortened by it.
bool take_rank(std::string_view& words, std::string_view name, int& rank, int& count) {
  const auto take = [&](std::string_view word) {
    const bool there = words.starts_with(word);
    if (there) words.remove_prefix(word.size());
    return there;
  };
  const auto number = [&](int& into) {
    const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), into);
    const bool fine = error == std::errc() && into >= 0 && end != words.data();
    if (fine) words.remove_prefix(static_cast<std::size_t>(end - words.data()));
    return fine;
  };
  return take(name) && take("-rank-") && number(rank) && take("-of-") && number(count) && rank < count;
}

bool is_off(const Json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) || (value.is_array() && value.empty());
}

Json parsed_object(const std::string& shown, const std::string& json) {
  files::check_json_bounds(json, shown);
  try {
    Json value = Json::parse(json);
    require<CheckpointError>(value.is_object(), shown,
                             ": is not a JSON object\n  fix: fetch the file again from where it came");
    return value;
  } catch (const nlohmann::json::exception& e) {
    throw CheckpointError(
        text(shown, ": ", files::json_fault(e.what()), "\n  fix: fetch the file again from where it came"));
  }
}

}  // namespace

std::string file_name(const NanotronFile& file) {
  if (!file.is_shard) return text(kNameBegin, file.parameter, kNameEnd);
  return text(kNameBegin, file.parameter, "_pp-rank-", file.pp_rank, "-of-", file.pp, "_tp-rank-", file.tp_rank, "-of-",
              file.tp, kNameEnd);
}

std::optional<NanotronFile> parse_nanotron_file(std::string_view name) {
  if (!name.starts_with(kNameBegin) || !name.ends_with(kNameEnd) || name.size() < kNameBegin.size() + kNameEnd.size())
    return std::nullopt;
  std::string_view words = name.substr(kNameBegin.size(), name.size() - kNameBegin.size() - kNameEnd.size());
  NanotronFile file;
  const std::size_t ranks = words.find("_pp-rank-");
  file.parameter = words.substr(0, ranks);
  file.is_shard = ranks != std::string_view::npos;
  if (file.is_shard) {
    words.remove_prefix(ranks + 1);
    if (!take_rank(words, "pp", file.pp_rank, file.pp) || !words.starts_with('_')) return std::nullopt;
    words.remove_prefix(1);
    if (!take_rank(words, "tp", file.tp_rank, file.tp) || !words.empty()) return std::nullopt;
  }
  return file.parameter.empty() ? std::nullopt : std::optional(file);
}

bool is_of_nanotron_layout(std::string_view name) {
  constexpr std::array kFolders = {"model/", "optimizer/", "lr_scheduler/", "random/"};
  return std::ranges::any_of(kFolders, [&](const char* folder) { return name.starts_with(folder); });
}

std::optional<Placement> nanotron_placement(const ModelConfig& model, const std::string& ours) {
  Placement placement = without_extra_rows(parameter_named(model, ours).spec.placement);
  return placement.cuts.empty() ? std::nullopt : std::optional(std::move(placement));
}

void check_for_nanotron(const ModelConfig& m, int tp) {
  require<ConfigError>(m.model_type == "llama" || m.model_type == "qwen2", "a model of the family ", m.model_type,
                       " cannot be converted for nanotron: it has llama and qwen2");
  require<ConfigError>(m.head_dim * m.num_attention_heads == m.hidden_size && !m.qk_norm && m.sliding_window == 0 &&
                           !(m.model_type == "llama" && m.attention_bias),
                       "nanotron's ", m.model_type, " has heads of hidden_size / num_attention_heads, ",
                       "no norms of q and k, no sliding window", m.model_type == "llama" ? ", no biases" : "",
                       ": this model has head_dim = ", m.head_dim, ", qk_norm = ", m.qk_norm ? "true" : "false",
                       ", sliding_window = ", m.sliding_window,
                       ", attention_bias = ", m.attention_bias ? "true" : "false");
  const std::pair<const char*, std::int64_t> sizes[] = {{"num_attention_heads", m.num_attention_heads},
                                                        {"num_key_value_heads", m.num_key_value_heads},
                                                        {"intermediate_size", m.intermediate_size},
                                                        {"vocab_size", m.vocab_size}};
  require<ConfigError>(tp >= 1, "--tp ", tp, ": must be at least 1");
  for (const auto& [name, size] : sizes)
    require<ConfigError>(size % tp == 0, "--tp ", tp, ": nanotron needs a divisor of ", name, " = ", size,
                         "\n  fix: another --tp");
}

std::string nanotron_model_config(const ModelConfig& m, const config::HfTokenIds& tokens) {
  const Json ours = Json::parse(config::hf_config_json(m, "float32", tokens));
  const bool qwen = m.model_type == "qwen2";
  Json json;
  for (const char* field : kSameFields) json[field] = ours.at(field);
  // Not optional there; its own defaults.
  if (json["bos_token_id"].is_null()) json["bos_token_id"] = 1;
  if (json["eos_token_id"].is_null()) json["eos_token_id"] = 2;
  json[qwen ? "is_qwen2_config" : "is_llama_config"] = true;
  json["pretraining_tp"] = 1;
  json["use_cache"] = true;
  json["rope_interleaved"] = false;
  const bool scaled = ours.contains("rope_scaling") && ours["rope_scaling"]["rope_type"] != "default";
  json["rope_scaling"] = scaled ? ours["rope_scaling"] : Json(nullptr);
  if (qwen) json["attention_bias"] = true;
  return json.dump(2) + "\n";
}

std::string config_json_of_nanotron(const std::string& shown, const std::string& model_config,
                                    const std::string& dtype) {
  const Json theirs = parsed_object(shown, model_config);
  const auto is_true = [&](const char* field) { return theirs.contains(field) && theirs[field] == true; };
  require<CheckpointError>(is_true("is_llama_config") || is_true("is_qwen2_config"), shown,
                           ": neither is_llama_config nor is_qwen2_config is true: only these models are read",
                           "\n  fix: convert it to a Hugging Face folder with nanotron's own tools");
  const bool bias = is_true("attention_bias");
  require<CheckpointError>(!bias || is_true("is_qwen2_config"), shown, ": attention_bias in a llama is not supported",
                           "\n  fix: convert it to a Hugging Face folder with nanotron's own tools");
  Json json;
  json["architectures"] = {bias ? "Qwen2ForCausalLM" : "LlamaForCausalLM"};
  json["model_type"] = bias ? "qwen2" : "llama";
  json["dtype"] = json["torch_dtype"] = dtype;
  for (const auto& [field, value] : theirs.items()) {
    const auto is_one_of = [&](const auto& fields) {
      return std::ranges::any_of(fields, [&](const char* each) { return field == each; });
    };
    if (is_one_of(kSameFields)) {
      json[field] = value;
    } else if (field == "rope_scaling") {
      if (!value.is_null()) json[field] = value;
    } else if (!field.starts_with('_') && !is_one_of(kHarmless)) {
      require<CheckpointError>(is_off(value), shown, ": ", field, " = ", value.dump().substr(0, 60),
                               " may change what the model computes, and is not supported",
                               "\n  fix: convert it to a Hugging Face folder with nanotron's own tools");
    }
  }
  json["use_cache"] = true;
  return json.dump(2) + "\n";
}

}  // namespace trireme::checkpoint
