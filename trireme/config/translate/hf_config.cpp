#include "trireme/config/translate/hf_config.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/config/settings/convert.hpp"
#include "trireme/config/settings/json_file.hpp"
#include "trireme/config/settings/toml_file.hpp"
#include "trireme/config/translate/aliases.hpp"
#include "trireme/config/translate/hf_config_write.hpp"

namespace trireme::config {
namespace {

struct Assumed {
  const char* key;
  Value value;
};

/// The defaults of a family's config class, if they differ from ours (transformers' configuration_*.py).
const std::vector<Assumed>& assumed_by(Family family) {
  using whole = std::int64_t;
  static const std::map<Family, std::vector<Assumed>> known = {
      {Family::gpt2,
       {{"tie_word_embeddings", {true}},
        {"hidden_act", {"gelu_new"}},
        {"max_position_embeddings", {whole{1024}}},
        {"vocab_size", {whole{50257}}},
        {"embd_pdrop", {0.1}},
        {"resid_pdrop", {0.1}},
        {"attention_dropout", {0.1}}}},
      {Family::llama, {{"norm_eps", {1e-6}}}},
      {Family::mistral,
       {{"norm_eps", {1e-6}},
        {"num_key_value_heads", {whole{8}}},
        {"max_position_embeddings", {whole{131072}}},
        {"sliding_window", {whole{4096}}}}},
      {Family::qwen2, {{"norm_eps", {1e-6}}, {"max_position_embeddings", {whole{32768}}}}},
      {Family::qwen3,
       {{"norm_eps", {1e-6}},
        {"qk_norm", {true}},
        {"head_dim", {whole{128}}},
        {"max_position_embeddings", {whole{32768}}}}},
      {Family::mixtral,
       {{"num_key_value_heads", {whole{8}}},
        {"max_position_embeddings", {whole{131072}}},
        {"rope_theta", {1e6}},
        {"num_local_experts", {whole{8}}},
        {"router_aux_loss_coef", {0.001}}}},
      {Family::qwen3_moe,
       {{"norm_eps", {1e-6}},
        {"qk_norm", {true}},
        {"num_key_value_heads", {whole{4}}},
        {"max_position_embeddings", {whole{32768}}},
        {"num_local_experts", {whole{128}}},
        {"num_experts_per_tok", {whole{8}}},
        {"moe_intermediate_size", {whole{768}}},
        {"norm_topk_prob", {false}},
        {"router_aux_loss_coef", {0.001}}}},
      {Family::gemma2,
       {{"norm_eps", {1e-6}},
        {"tie_word_embeddings", {true}},
        {"hidden_act", {"gelu_pytorch_tanh"}},
        {"num_key_value_heads", {whole{4}}},
        {"head_dim", {whole{256}}},
        {"max_position_embeddings", {whole{8192}}},
        {"sliding_window", {whole{4096}}},
        {"sliding_window_pattern", {whole{2}}},
        {"query_pre_attn_scalar", {whole{256}}},
        {"attn_logit_softcapping", {50.0}},
        {"final_logit_softcapping", {30.0}}}},
  };
  return known.at(family);
}

/// Options that change the computation, and the only value of each that we support.
const std::map<std::string, Value>& only() {
  static const std::map<std::string, Value> values = {{"mlp_bias", {false}},
                                                      {"scale_attn_weights", {true}},
                                                      {"scale_attn_by_inverse_layer_idx", {false}},
                                                      {"reorder_and_upcast_attn", {false}},
                                                      {"add_cross_attention", {false}},
                                                      {"is_encoder_decoder", {false}},
                                                      {"partial_rotary_factor", {1.0}},
                                                      {"pretraining_tp", {std::int64_t{1}}},
                                                      {"router_jitter_noise", {0.0}},
                                                      {"decoder_sparse_step", {std::int64_t{1}}},
                                                      {"mlp_only_layers", {Values{}}},
                                                      {"is_llama_config", {true}}};
  return values;
}

/// Our key for a key of config.json: the same, or one of GPT-2's; empty if it does not describe the model here.
std::string our_key(const std::string& word) {
  // transformers 5 groups the RoPE parameters, including rope_theta.
  std::string path = "model." + word;
  if (word == "rope_parameters.rope_theta")
    path = "model.rope_theta";
  else if (word.starts_with("rope_parameters."))
    path = "model.rope_scaling" + word.substr(15);
  static const std::set<std::string> not_of_config_json = {"model.preset", "model.hf", "model.init", "model.dtype"};
  static const std::set<std::string> ours = [] {
    Config config;
    std::set<std::string> keys;
    for (const Field& field : fields(config)) keys.insert(field.key);
    return keys;
  }();
  if (ours.contains(path)) return not_of_config_json.contains(path) ? "" : path;
  for (const AliasMatch& match : find_aliases(path))
    if (match.alias->framework == Framework::hf_config && match.key != "model.dtype") return match.key;
  return "";
}

/// Keys for which null means off or derived, like our 0.
const std::set<std::string>& null_is_zero() {
  static const std::set<std::string> keys = {
      "model.sliding_window",    "model.num_key_value_heads",    "model.head_dim",
      "model.intermediate_size", "model.attn_logit_softcapping", "model.final_logit_softcapping"};
  return keys;
}

bool is_same(const Value& a, const Value& b) {
  return a == b || (plain_number(a).has_value() && plain_number(a) == plain_number(b));
}

/// Sliding windows, if they are the same for all layers, or for every layer but each second one.
void set_window(const std::string& file, const FamilyInfo& family, const Settings& read, HfConfig& out) {
  const auto value = [&](const char* word) {
    const auto it = std::ranges::find(read, word, &Setting::path);
    return it == read.end() ? Value{Nothing{}} : it->value;
  };
  const auto at = std::ranges::find(out.settings, "model.sliding_window", &Setting::path);
  // Qwen has a sliding_window even if unused, and excludes the first layers from it.
  const bool switched = family.hf.window == HfWindow::switched;
  if (switched && value("use_sliding_window") != Value{true}) {
    if (at != out.settings.end()) at->value = {std::int64_t{0}};
  } else if (switched) {
    require<ConfigError>(is_same(value("max_window_layers"), {std::int64_t{0}}), file,
                         ": use_sliding_window with max_window_layers = ", brief(value("max_window_layers")),
                         " is not supported, only 0: every layer has the same window here");
  }
  const Value types = value("layer_types");
  if (!std::holds_alternative<Values>(types.data)) return;
  const bool windowed = at != out.settings.end() && at->value != Value{std::int64_t{0}};
  const std::int64_t pattern = family.hf.window == HfWindow::alternating ? kAlternatingPattern : 0;
  std::int64_t layer = 0;
  const auto listed = static_cast<std::int64_t>(std::get<Values>(types.data).size());
  if (const Value layers = value("num_hidden_layers"); !std::holds_alternative<Nothing>(layers.data))
    require<ConfigError>(is_same(layers, {listed}), file, ": layer_types has ", listed,
                         " layers, num_hidden_layers = ", brief(layers));
  for (const Value& type : std::get<Values>(types.data)) {
    const bool slides = windowed && !(pattern > 0 && ++layer % pattern == 0);
    require<ConfigError>(type == Value{slides ? "sliding_attention" : "full_attention"}, file, ": layer_types holds ",
                         brief(type), windowed ? ", with a window" : ", without a window",
                         pattern > 0 ? ": only every second layer without one is supported"
                                     : ": layers of several kinds are not supported");
  }
}

}  // namespace

HfConfig parse_hf_config(const std::string& file, const std::string& json) {
  const Settings read = parse_json(file, json);
  const auto find = [&](const std::string& path) {
    const auto it = std::ranges::find(read, path, &Setting::path);
    return it == read.end() ? nullptr : &*it;
  };
  const Setting* type = find("model_type");
  require<ConfigError>(type != nullptr, file, " has no model_type: is this a model's config.json?");
  // Of own_config_json(): every key is ours and given.
  std::string type_name = plain_text(type->value);
  const bool is_own = type_name.starts_with(kOwnTypePrefix);
  if (is_own) type_name.erase(0, std::string_view(kOwnTypePrefix).size());
  const FamilyInfo* family = find_family(type_name);
  if (family == nullptr) {
    std::vector<std::string> names = family_names();
    std::ranges::sort(names);
    std::string known;
    for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
    throw ConfigError(
        text(file, ": model_type = ", brief(type->value), " is not one of the supported families: ", known));
  }

  HfConfig out;
  const auto set = [&](const std::string& path, const Value& value) {
    std::erase_if(out.settings, [&](const Setting& s) { return s.path == path; });
    out.settings.push_back({path, value, {file, 0, 0, ""}});
  };
  for (const Assumed& assumed : assumed_by(family->id)) set(text("model.", assumed.key), assumed.value);
  for (const Setting& s : read) {
    if (std::holds_alternative<Nothing>(s.value.data)) {
      if (null_is_zero().contains(our_key(s.path))) set(our_key(s.path), {std::int64_t{0}});
      continue;  // null elsewhere: the family's default
    }
    if (const auto fixed = only().find(s.path); fixed != only().end()) {
      require<ConfigError>(is_same(s.value, fixed->second), file, ": ", s.path, " = ", brief(s.value),
                           " is not supported, only ", str(fixed->second));
      continue;
    }
    const std::string key = our_key(s.path);
    if (!key.empty()) {
      set(key, s.value);
      continue;
    }
    require<ConfigError>(!s.path.starts_with("rope_scaling") && !s.path.starts_with("rope_parameters"), file, ": ",
                         shortened(s.path), " = ", brief(s.value), " is a kind of RoPE that is not supported");
    out.ignored.push_back(s.path);
  }
  if (is_own)
    set("model.model_type", {type_name});
  else
    set_window(file, *family, read, out);
  return out;
}

HfConfig read_hf_config(const std::string& path) {
  std::filesystem::path file = path;
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) file /= "config.json";
  // A pipe, as a config of ours may be one, would wait for somebody to write.
  require<ConfigError>(std::filesystem::is_regular_file(file, ignored) || !std::filesystem::exists(file, ignored),
                       file.string(), ": is not a regular file");
  return parse_hf_config(file.string(), read_config_file(file.string()));
}

}  // namespace trireme::config
