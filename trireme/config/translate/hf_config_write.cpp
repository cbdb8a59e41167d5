#include "trireme/config/translate/hf_config_write.hpp"

#include <cmath>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/choices.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/config/schema/registered_families.hpp"
#include "trireme/config/schema/setting.hpp"

namespace trireme::config {
namespace {

using Json = nlohmann::ordered_json;

/// "mistral, qwen2 and qwen3": the writable families whose class in transformers satisfies the predicate.
std::string writable_families(bool (*is_so)(const HfTraits&)) {
  std::vector<std::string_view> names;
  for (const FamilyInfo& family : families())
    if (is_so(family.hf)) names.push_back(family.name);
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i)
    out += text(i == 0 ? "" : i + 1 < names.size() ? ", " : " and ", names[i]);
  return out;
}

/// Settings that the family's class in transformers cannot express, so that it would compute something else.
std::vector<std::string> untellable(const ModelConfig& m) {
  const FamilyInfo& family = family_of(m);
  const HfTraits& hf = family.hf;
  const bool heads_fill = hf.heads == HfHeads::fill_hidden_size;
  std::vector<std::string> out;
  const auto refuse = [&](bool wrong, const std::string& what) {
    if (wrong) out.push_back(what);
  };
  const bool has_experts = hf.experts != HfExperts::none;
  refuse(m.num_local_experts > 0 && !has_experts,
         text("num_local_experts = ", m.num_local_experts, ": its MLP is dense"));
  refuse(hf.experts == HfExperts::mixtral && !m.norm_topk_prob, "norm_topk_prob = false: it always normalises them");
  refuse(hf.experts == HfExperts::mixtral && m.moe_intermediate_size != m.intermediate_size,
         text("moe_intermediate_size = ", m.moe_intermediate_size,
              ": that of its experts is intermediate_size = ", m.intermediate_size));
  refuse(has_experts && m.scoring_func != "softmax",
         text("scoring_func = \"", m.scoring_func, "\": its router has a softmax"));
  refuse(has_experts && m.routed_scaling_factor != 1,
         text("routed_scaling_factor = ", m.routed_scaling_factor, ": it has none"));
  refuse(has_experts && m.expert_capacity_factor > 0,
         text("expert_capacity_factor = ", m.expert_capacity_factor, ": its experts take every token"));
  refuse(has_experts && m.router_bias_update_rate > 0,
         text("router_bias_update_rate = ", m.router_bias_update_rate, ": its router has no bias"));
  refuse(has_experts && m.shared_expert_intermediate_size > 0,
         text("shared_expert_intermediate_size = ", m.shared_expert_intermediate_size, ": it has no shared expert"));
  refuse(m.qk_norm && !hf.has_qk_norm,
         text("qk_norm = true: only ", writable_families([](const HfTraits& t) { return t.has_qk_norm; }),
              " support q and k norms"));
  refuse(!m.qk_norm && hf.has_qk_norm, "qk_norm = false: it always has norms of q and k");
  // If attention_bias has no effect (gpt2, qwen2), both agree.
  refuse(m.attention_bias && family.qkv_bias == BiasRule::by_config && !hf.reads_attention_bias,
         "attention_bias = true: it has no biases");
  refuse(m.sliding_window > 0 && hf.window == HfWindow::none,
         text("sliding_window = ", m.sliding_window, ": only ",
              writable_families([](const HfTraits& t) { return t.window != HfWindow::none; }),
              " support sliding windows"));
  refuse(m.sliding_window > 0 && m.sliding_window_pattern > 0 && hf.window != HfWindow::alternating,
         text("sliding_window_pattern = ", m.sliding_window_pattern, ": all its layers have the window"));
  refuse(hf.window == HfWindow::alternating && m.sliding_window > 0 && m.sliding_window_pattern != kAlternatingPattern,
         text("sliding_window_pattern = ", m.sliding_window_pattern, ": its windows alternate, which is ",
              kAlternatingPattern));
  for (const auto& [key, value] : {std::pair{"attn_logit_softcapping", m.attn_logit_softcapping},
                                   std::pair{"final_logit_softcapping", m.final_logit_softcapping},
                                   std::pair{"query_pre_attn_scalar", m.query_pre_attn_scalar}})
    refuse(value > 0 && !hf.has_softcaps, text(key, " = ", value, ": it has none"));
  refuse(heads_fill && m.num_key_value_heads != m.num_attention_heads,
         text("num_key_value_heads = ", m.num_key_value_heads,
              ": it has as many as num_attention_heads = ", m.num_attention_heads));
  refuse(heads_fill && m.head_dim * m.num_attention_heads != m.hidden_size,
         text("head_dim = ", m.head_dim, ": its heads share hidden_size = ", m.hidden_size, " between them"));
  refuse(hf.heads == HfHeads::divide_hidden_size && m.hidden_size % m.num_attention_heads != 0,
         text("hidden_size = ", m.hidden_size,
              ": it must be a multiple of num_attention_heads = ", m.num_attention_heads));
  return out;
}

void add_gpt2(Json& json, const ModelConfig& m) {
  json["n_embd"] = m.hidden_size;
  json["n_layer"] = m.num_hidden_layers;
  json["n_head"] = m.num_attention_heads;
  json["n_inner"] = m.intermediate_size;
  json["n_positions"] = m.max_position_embeddings;
  json["n_ctx"] = m.max_position_embeddings;  // read by other GPT-2 implementations
  json["activation_function"] = m.hidden_act;
  json["layer_norm_epsilon"] = m.norm_eps;
  json["embd_pdrop"] = m.embd_pdrop;
  json["resid_pdrop"] = m.resid_pdrop;
  json["attn_pdrop"] = m.attention_dropout;
  json["scale_attn_weights"] = true;
  json["scale_attn_by_inverse_layer_idx"] = false;
  json["reorder_and_upcast_attn"] = false;
}

/// In the format of transformers 4, which 4 and 5 both read; 4 does not know rope_parameters.
void add_rope(Json& json, const ModelConfig& m) {
  json["rope_theta"] = m.rope_theta;
  const RopeScaling& scaling = m.rope_scaling;
  if (scaling.rope_type.empty()) return;
  Json& out = json["rope_scaling"];
  out["rope_type"] = scaling.rope_type;
  const RopeKind kind = parse_rope_kind(scaling.rope_type);
  if (kind == RopeKind::plain) return;
  out["factor"] = scaling.factor;
  if (kind == RopeKind::llama3) {
    out["low_freq_factor"] = scaling.low_freq_factor;
    out["high_freq_factor"] = scaling.high_freq_factor;
  }
  if (kind == RopeKind::yarn) {
    out["beta_fast"] = scaling.beta_fast;
    out["beta_slow"] = scaling.beta_slow;
    out["truncate"] = scaling.truncate;
    if (scaling.attention_factor > 0) out["attention_factor"] = scaling.attention_factor;
    if (scaling.mscale > 0) out["mscale"] = scaling.mscale;
    if (scaling.mscale_all_dim > 0) out["mscale_all_dim"] = scaling.mscale_all_dim;
  }
  if (kind == RopeKind::llama3 || kind == RopeKind::yarn)
    out["original_max_position_embeddings"] = rope_original_length(m);
}

void add_window(Json& json, const ModelConfig& m, HfWindow kind) {
  if (kind == HfWindow::none) return;
  const bool windowed = m.sliding_window > 0;
  json["sliding_window"] = windowed ? Json(m.sliding_window) : Json(nullptr);
  if (kind == HfWindow::alternating) {  // also read by transformers without a window
    for (std::int64_t i = 0; i < m.num_hidden_layers; ++i)
      json["layer_types"].push_back(window_of_layer(m, i) > 0 ? "sliding_attention" : "full_attention");
    return;
  }
  if (kind == HfWindow::number) return;
  json["use_sliding_window"] = windowed;
  json["max_window_layers"] = windowed ? 0 : m.num_hidden_layers;  // the number of layers without a window
}

void add_expert_keys(Json& json, const ModelConfig& m, HfExperts kind) {
  if (kind == HfExperts::none) return;
  json[kind == HfExperts::mixtral ? "num_local_experts" : "num_experts"] = m.num_local_experts;
  json["num_experts_per_tok"] = m.num_experts_per_tok;
  json["router_aux_loss_coef"] = m.router_aux_loss_coef;
  // For reading the config back here.
  if (m.router_z_loss_coef > 0) json["router_z_loss_coef"] = m.router_z_loss_coef;
  if (kind == HfExperts::mixtral) return;
  json["moe_intermediate_size"] = m.moe_intermediate_size;
  json["norm_topk_prob"] = m.norm_topk_prob;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = Json::array();
}

void add_llama_like(Json& json, const ModelConfig& m, const HfTraits& hf) {
  json["hidden_size"] = m.hidden_size;
  json["num_hidden_layers"] = m.num_hidden_layers;
  json["num_attention_heads"] = m.num_attention_heads;
  json["num_key_value_heads"] = m.num_key_value_heads;
  json["head_dim"] = m.head_dim;
  json["intermediate_size"] = m.intermediate_size;
  json["max_position_embeddings"] = m.max_position_embeddings;
  json["hidden_act"] = m.hidden_act;
  if (hf.has_softcaps) {
    const auto cap = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
    json["hidden_activation"] = m.hidden_act;
    const double scalar = m.query_pre_attn_scalar > 0 ? m.query_pre_attn_scalar : static_cast<double>(m.head_dim);
    json["query_pre_attn_scalar"] = std::floor(scalar) == scalar ? Json(std::llround(scalar)) : Json(scalar);
    json["attn_logit_softcapping"] = cap(m.attn_logit_softcapping);
    json["final_logit_softcapping"] = cap(m.final_logit_softcapping);
  }
  json["rms_norm_eps"] = m.norm_eps;
  add_rope(json, m);
  if (hf.reads_attention_bias) json["attention_bias"] = m.attention_bias;
  if (hf.reads_mlp_bias) json["mlp_bias"] = false;
  add_window(json, m, hf.window);
  add_expert_keys(json, m, hf.experts);
  json["attention_dropout"] = m.attention_dropout;
  // These classes have no such dropout; the keys are for reading the config back here.
  if (m.embd_pdrop > 0) json["embd_pdrop"] = m.embd_pdrop;
  if (m.resid_pdrop > 0) json["resid_pdrop"] = m.resid_pdrop;
}

void add_token_ids(Json& json, const HfTokenIds& tokens) {
  const auto id = [](const std::optional<std::int64_t>& token) { return token ? Json(*token) : Json(nullptr); };
  json["bos_token_id"] = id(tokens.bos);
  json["eos_token_id"] = id(tokens.eos);
  json["pad_token_id"] = id(tokens.pad);
}

}  // namespace

std::string hf_config_json(const ModelConfig& m, const std::string& dtype, const HfTokenIds& tokens) {
  const FamilyInfo* family = find_family(m.model_type);
  require<ConfigError>(family != nullptr, "model.model_type = \"", shortened(m.model_type),
                       "\" cannot be written for transformers, only ", all_family_names());
  require_built_in(m, "a config.json for transformers");
  require(m.hidden_size > 0 && m.num_attention_heads > 0 && m.num_key_value_heads > 0 && m.head_dim > 0 &&
              m.intermediate_size > 0,
          "hf_config_json: the model's sizes are not derived");
  if (const std::vector<std::string> wrong = untellable(m); !wrong.empty()) {
    std::string list;
    for (const std::string& what : wrong) list += "\n  model." + what;
    throw ConfigError(text("this model cannot be written as a ", m.model_type, " of transformers", list,
                           "\n  fix: choose a model_type that has it"));
  }

  Json json;
  json["architectures"] = {family->hf.architecture};
  json["model_type"] = m.model_type;
  json["dtype"] = dtype;
  json["torch_dtype"] = dtype;  // before transformers 4.56
  json["vocab_size"] = m.vocab_size;
  if (family->hf.names == HfNames::gpt2)
    add_gpt2(json, m);
  else
    add_llama_like(json, m, family->hf);
  json["initializer_range"] = m.initializer_range;
  json["tie_word_embeddings"] = m.tie_word_embeddings;
  json["use_cache"] = true;
  add_token_ids(json, tokens);
  return json.dump(2) + "\n";
}

std::string own_config_json(ModelConfig model, const std::string& dtype, const HfTokenIds& tokens) {
  require_built_in(model, "a config.json");
  Config config;
  config.model = std::move(model);
  Json json;
  json["model_type"] = kOwnTypePrefix + config.model.model_type;
  json["dtype"] = dtype;
  for (const Field& field : fields(config)) {
    constexpr std::string_view kSection = "model.";
    if (!field.key.starts_with(kSection)) continue;
    std::string_view key = std::string_view(field.key).substr(kSection.size());
    if (key == "model_type" || key == "preset" || key == "hf" || key == "init" || key == "dtype") continue;
    Json* table = &json;
    for (std::size_t dot; (dot = key.find('.')) != std::string_view::npos; key.remove_prefix(dot + 1))
      table = &(*table)[std::string(key.substr(0, dot))];
    Json& out = (*table)[std::string(key)];
    std::visit(
        [&](const auto* value) {
          if constexpr (std::is_same_v<decltype(value), const Steps*>)
            out = static_cast<double>(*value);
          else
            out = *value;
        },
        field.value);
  }
  add_token_ids(json, tokens);
  return json.dump(2) + "\n";
}

std::string what_transformers_lacks(const ModelConfig& model, const std::string& dtype) {
  try {
    hf_config_json(model, dtype);
    return "";
  } catch (const ConfigError& e) {
    return e.what();
  }
}

}  // namespace trireme::config
