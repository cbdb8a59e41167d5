#include "trireme/config/hf_config.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

#include "trireme/base/error.hpp"
#include "trireme/config/aliases.hpp"
#include "trireme/config/convert.hpp"
#include "trireme/config/fields.hpp"
#include "trireme/config/json_file.hpp"
#include "trireme/config/toml_file.hpp"

namespace trireme {
namespace {

/// What a family's classes assume when config.json does not say, where it differs from our defaults.
const std::map<std::string, Settings>& families() {
  static const std::map<std::string, Settings> known = {
      {"gpt2",
       {{"model.tie_word_embeddings", {true}, {}},
        {"model.hidden_act", {"gelu_new"}, {}},
        {"model.norm_eps", {1e-5}, {}},
        {"model.max_position_embeddings", {std::int64_t{1024}}, {}}}},
      {"llama", {{"model.norm_eps", {1e-6}, {}}}},
      {"mistral", {{"model.norm_eps", {1e-6}, {}}}},
      {"qwen2", {{"model.norm_eps", {1e-6}, {}}}},
      {"qwen3", {{"model.norm_eps", {1e-6}, {}}, {"model.qk_norm", {true}, {}}}},
      {"mixtral", {{"model.norm_eps", {1e-5}, {}}}},
  };
  return known;
}

/// Switches that change the maths and that we have only in the position on the right.
const std::map<std::string, Value>& only() {
  static const std::map<std::string, Value> values = {{"mlp_bias", {false}},
                                                      {"scale_attn_weights", {true}},
                                                      {"scale_attn_by_inverse_layer_idx", {false}},
                                                      {"reorder_and_upcast_attn", {false}},
                                                      {"add_cross_attention", {false}},
                                                      {"is_encoder_decoder", {false}},
                                                      {"pretraining_tp", {std::int64_t{1}}},
                                                      {"is_llama_config", {true}}};
  return values;
}

bool is_ours(const std::string& path) {
  Config config;
  const std::vector<Field> all = fields(config);
  return std::ranges::find(all, path, &Field::key) != all.end() || !find_aliases(path).empty();
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
  const auto family = families().find(plain_text(type->value));
  if (family == families().end()) {
    std::string known;
    for (const auto& [name, settings] : families()) known += (known.empty() ? "" : ", ") + name;
    throw ConfigError(
        text(file, ": model_type = ", str(type->value), " is not one of the families that we have: ", known));
  }

  HfConfig out;
  const auto set = [&](const std::string& path, const Value& value) {
    std::erase_if(out.settings, [&](const Setting& s) { return s.path == path; });
    out.settings.push_back({path, value, {file, 0, 0, ""}});
  };
  for (const Setting& s : family->second) set(s.path, s.value);
  for (const Setting& s : read) {
    if (std::holds_alternative<Nothing>(s.value.data)) continue;  // null: as the family has it
    if (const auto fixed = only().find(s.path); fixed != only().end()) {
      require<ConfigError>(s.value == fixed->second, file, ": ", s.path, " = ", str(s.value),
                           " is not supported, only ", str(fixed->second));
      continue;
    }
    // transformers 5 keeps RoPE's numbers together; rope_theta is among them.
    std::string path = "model." + s.path;
    if (s.path == "rope_parameters.rope_theta")
      path = "model.rope_theta";
    else if (s.path.starts_with("rope_parameters."))
      path = "model.rope_scaling" + s.path.substr(15);
    if (s.path == "torch_dtype" || s.path == "dtype" || !is_ours(path)) {
      require<ConfigError>(!s.path.starts_with("rope_scaling") && !s.path.starts_with("rope_parameters"), file, ": ",
                           s.path, " = ", str(s.value), " is a kind of RoPE that is not supported");
      out.ignored.push_back(s.path);
      continue;
    }
    const auto matches = find_aliases(path);
    set(matches.empty() ? path : matches.front().key, s.value);
  }
  // Qwen writes a window down even where it does not use one.
  const Setting* window = find("use_sliding_window");
  if (window != nullptr && window->value == Value{false}) set("model.sliding_window", {std::int64_t{0}});
  return out;
}

HfConfig read_hf_config(const std::string& path) {
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(file)) file /= "config.json";
  return parse_hf_config(file.string(), read_config_file(file.string()));
}

}  // namespace trireme
