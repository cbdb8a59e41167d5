#include "trireme/model/block_parts.hpp"

#include "trireme/base/error.hpp"
#include "trireme/config/schema/choices.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/model/grouped_query_attention.hpp"
#include "trireme/parallel/expert/experts.hpp"

namespace trireme {
namespace {

std::shared_ptr<MlpLayer> make_experts(const ModelConfig& m, const Parallel& parallel) {
  const std::int64_t hidden = m.moe_intermediate_size > 0 ? m.moe_intermediate_size : m.intermediate_size;
  const bool has_sigmoid = config::parse_router_scoring(m.scoring_func) == config::RouterScoring::sigmoid;
  return std::make_shared<ExpertMlp>(
      RouterOptions{.features = m.hidden_size,
                    .experts = m.num_local_experts,
                    .top_k = m.num_experts_per_tok,
                    .scores = has_sigmoid ? RouterScores::sigmoid : RouterScores::softmax,
                    .normalised = m.norm_topk_prob,
                    .scale = m.routed_scaling_factor,
                    .capacity_factor = m.expert_capacity_factor,
                    .balance = m.router_aux_loss_coef,
                    .balance_over = balances_all_layers(m) ? BalanceOver::pooled : BalanceOver::sample,
                    .z_loss = m.router_z_loss_coef,
                    .selection_bias = m.router_bias_update_rate > 0},
      hidden, parallel, m.shared_expert_intermediate_size);
}

}  // namespace

std::shared_ptr<Norm> make_norm(const ModelConfig& m, const Parallel& parallel) {
  if (config::family_of(m).norm == config::NormKind::layer_norm)
    return std::make_shared<LayerNorm>(m.hidden_size, m.norm_eps, parallel, parallel.partial_between());
  const bool unit = config::family_of(m).norm == config::NormKind::unit_rms_norm;
  return std::make_shared<RmsNorm>(m.hidden_size, m.norm_eps, parallel, parallel.partial_between(),
                                   unit ? NormScale::one_plus_weight : NormScale::weight);
}

AttentionOptions attention_options(const ModelConfig& m, std::int64_t layer) {
  return {.features = m.hidden_size,
          .heads = m.num_attention_heads,
          .kv_heads = m.num_key_value_heads,
          .head_dim = m.head_dim,
          .qkv_bias = config::has_qkv_bias(m),
          .out_bias = config::has_out_bias(m),
          .qk_norm = m.qk_norm,
          .norm_eps = m.norm_eps,
          .window = config::window_of_layer(m, layer),
          .score_size = m.query_pre_attn_scalar,
          .softcap = m.attn_logit_softcapping,
          .dropout = m.attention_dropout};
}

std::shared_ptr<Attention> make_attention(const ModelConfig& m, const Parallel& parallel, std::int64_t layer) {
  return std::make_shared<GroupedQueryAttention>(attention_options(m, layer), parallel);
}

std::shared_ptr<MlpLayer> make_mlp(const ModelConfig& m, const Parallel& parallel) {
  using config::MlpKind;
  const MlpKind kind = config::family_of(m).mlp;
  const bool tanh_form = m.hidden_act == "gelu_new" || m.hidden_act == "gelu_pytorch_tanh";
  require<ConfigError>(kind == MlpKind::swiglu ? m.hidden_act == "silu" : tanh_form || m.hidden_act == "gelu",
                       "model.hidden_act = \"", m.hidden_act, "\" of a ", m.model_type, " model: must be ",
                       kind == MlpKind::swiglu ? "silu" : "gelu, gelu_new or gelu_pytorch_tanh");
  if (kind == MlpKind::gelu)
    return std::make_shared<GeluMlp>(m.hidden_size, m.intermediate_size, /*bias=*/true, tanh_form, parallel);
  if (m.num_local_experts > 0) return make_experts(m, parallel);
  return std::make_shared<GatedMlp>(m.hidden_size, m.intermediate_size, parallel,
                                    kind == MlpKind::swiglu ? GateActivation::silu
                                    : tanh_form             ? GateActivation::gelu_tanh
                                                            : GateActivation::gelu);
}

bool attends_to_all(const ModelConfig& m, std::int64_t layer) {
  return m.sliding_window > 0 && config::window_of_layer(m, layer) == 0;
}

bool balances_all_layers(const ModelConfig& m) {
  return m.num_local_experts > 0 && m.router_aux_loss_coef > 0 &&
         config::parse_router_balance(m.router_aux_loss_type) == config::RouterBalance::hf;
}

}  // namespace trireme
