#include "trireme/describe/family_parameters.hpp"

namespace trireme {
namespace {

void append(std::vector<Parameter>& parameters, std::vector<Parameter> more) {
  for (Parameter& parameter : more) parameters.push_back(std::move(parameter));
}

std::vector<Parameter> attention_parameters(const ModelConfig& m) {
  const std::int64_t h = m.hidden_size, q = query_width(m), kv = kv_width(m);
  const auto projections = [&](const std::string& what) {
    return std::vector<TheirTensor>{
        {"self_attn.q_proj." + what, q}, {"self_attn.k_proj." + what, kv}, {"self_attn.v_proj." + what, kv}};
  };
  const Parameter qkv = column_weight("attention.qkv.weight", ParameterKind::attention, {q + 2 * kv, h},
                                      attention_heads(m), projections("weight")),
                  out = row_weight("attention.out.weight", ParameterKind::attention, {h, q}, "self_attn.o_proj.weight");
  std::vector<Parameter> parameters = {qkv};
  if (config::has_qkv_bias(m)) parameters.push_back(column_bias(qkv, "attention.qkv.bias", projections("bias")));
  parameters.push_back(out);
  if (config::has_out_bias(m)) parameters.push_back(row_bias(out, "attention.out.bias", "self_attn.o_proj.bias"));
  if (m.qk_norm) append(parameters, head_norms(m, "self_attn."));
  return parameters;
}

std::vector<Parameter> gated_mlp(const std::string& ours, const std::string& theirs, std::int64_t hidden,
                                 std::int64_t width) {
  return {column_weight(ours + "gate_up.weight", ParameterKind::mlp, {2 * width, hidden}, gate_up(Axis::tp, 0, width),
                        {{theirs + "gate_proj.weight", width}, {theirs + "up_proj.weight", width}}),
          row_weight(ours + "down.weight", ParameterKind::mlp, {hidden, width}, theirs + "down_proj.weight")};
}

/// What transformers' Mixtral and Qwen3-MoE do not have is named as in DeepSeek-V3.
std::vector<Parameter> expert_mlp(const ModelConfig& m) {
  const bool is_mixtral = config::family_of(m).hf.experts == config::HfExperts::mixtral;
  const std::string theirs = is_mixtral ? "block_sparse_moe." : "mlp.";
  const auto of_expert = [&](const char* mixtral, const char* qwen) {
    return text(theirs, "experts.{expert}.", is_mixtral ? mixtral : qwen, ".weight");
  };
  const std::int64_t h = m.hidden_size, width = expert_width(m), experts = m.num_local_experts;
  std::vector<Parameter> parameters = {
      {.name = "mlp.expert_gate_up",
       .kind = ParameterKind::expert,
       .spec = {.shape = {experts, 2 * width, h},
                .placement = {.cuts = {{Axis::ep, 0}, gate_up(Axis::tp, 1, width)}, .view = View::expert}},
       .theirs = {{of_expert("w1", "gate_proj"), width}, {of_expert("w3", "up_proj"), width}}},
      {.name = "mlp.expert_down",
       .kind = ParameterKind::expert,
       .spec = {.shape = {experts, h, width},
                .placement = {.cuts = {{Axis::ep, 0}, {Axis::tp, 2}}, .view = View::expert},
                .fill = Fill::residual_weight},
       .theirs = {{of_expert("w2", "down_proj"), h}}},
      {.name = "mlp.router.weight",
       .kind = ParameterKind::router,
       .spec = {.shape = {experts, h}},
       .theirs = {{theirs + "gate.weight", experts}}}};
  if (m.router_bias_update_rate > 0)
    parameters.push_back({.name = "mlp.router.selection_bias",
                          .kind = ParameterKind::router,
                          .spec = {.shape = {experts}, .fill = Fill::zeros},
                          .theirs = {{theirs + "gate.e_score_correction_bias", experts}}});
  if (m.shared_expert_intermediate_size > 0)
    append(parameters, gated_mlp("mlp.shared.", theirs + "shared_experts.", h, m.shared_expert_intermediate_size));
  return parameters;
}

}  // namespace

ModelParameters llama_parameters(const ModelConfig& m) {
  const config::FamilyInfo& family = config::family_of(m);
  const auto norm = [&](const std::string& ours, const std::string& theirs) {
    return norm_weight(ours, m.hidden_size, theirs,
                       family.norm == config::NormKind::unit_rms_norm ? Fill::zeros : Fill::ones);
  };
  std::vector<Parameter> layer = {norm("attention_norm.weight", "input_layernorm.weight")};
  append(layer, attention_parameters(m));
  if (family.post_norms) {
    layer.push_back(norm("attention_post_norm.weight", "post_attention_layernorm.weight"));
    layer.push_back(norm("mlp_norm.weight", "pre_feedforward_layernorm.weight"));
  } else {
    layer.push_back(norm("mlp_norm.weight", "post_attention_layernorm.weight"));
  }
  append(layer,
         m.num_local_experts > 0 ? expert_mlp(m) : gated_mlp("mlp.", "mlp.", m.hidden_size, m.intermediate_size));
  if (family.post_norms) layer.push_back(norm("mlp_post_norm.weight", "post_feedforward_layernorm.weight"));

  ModelParameters out{.begin = {vocabulary_parameter(m, "embedding.weight", ParameterKind::embedding, Fill::embedding,
                                                     "model.embed_tokens.weight")},
                      .layers = {{.layers = {0, m.num_hidden_layers}, .parameters = std::move(layer)}},
                      .end = {norm("norm.weight", "model.norm.weight")},
                      .their_layers = "model.layers."};
  if (!m.tie_word_embeddings)
    out.end.push_back(vocabulary_parameter(m, "head.weight", ParameterKind::head, Fill::weight, "lm_head.weight"));
  return out;
}

}  // namespace trireme
