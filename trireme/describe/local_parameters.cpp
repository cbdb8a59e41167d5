#include "trireme/describe/local_parameters.hpp"

#include <numeric>
#include <utility>

#include "trireme/config/schema/family.hpp"
#include "trireme/config/schema/registered_families.hpp"
#include "trireme/layout/param_layout.hpp"

namespace trireme::config {
namespace {

/// Parameters as the layers of nn/ declare them.
using Specs = std::vector<ParamSpec>;

ParamSpec whole(Shape shape) { return {.shape = std::move(shape)}; }
ParamSpec cut(Shape shape, Cut how) { return {.shape = std::move(shape), .placement = {.cuts = {std::move(how)}}}; }
void append(Specs& specs, const Specs& more) { specs.insert(specs.end(), more.begin(), more.end()); }

Specs norm_specs(const ModelConfig& m) {
  Specs specs = {whole({m.hidden_size})};
  if (config::family_of(m).norm == config::NormKind::layer_norm) specs.push_back(whole({m.hidden_size}));
  return specs;
}

Specs attention_specs(const ModelConfig& m) {
  const std::int64_t h = m.hidden_size, q = m.num_attention_heads * m.head_dim;
  const std::int64_t rows = q + 2 * m.num_key_value_heads * m.head_dim;
  const Cut heads = fused_qkv(Axis::tp, 0, m.num_attention_heads, m.num_key_value_heads, m.head_dim);
  Specs specs = {cut({rows, h}, heads), cut({h, q}, {Axis::tp, 1})};
  if (config::has_qkv_bias(m)) specs.push_back(cut({rows}, heads));
  if (config::has_out_bias(m)) specs.push_back(whole({h}));
  if (m.qk_norm) append(specs, {whole({m.head_dim}), whole({m.head_dim})});
  return specs;
}

Specs mlp_specs(const ModelConfig& m) {
  const std::int64_t h = m.hidden_size;
  if (m.num_local_experts > 0) {
    Specs specs = {whole({m.num_local_experts, h})};
    if (m.router_bias_update_rate > 0) specs.push_back(whole({m.num_local_experts}));
    if (const std::int64_t shared = m.shared_expert_intermediate_size; shared > 0)
      append(specs, {cut({2 * shared, h}, gate_up(Axis::tp, 0, shared)), cut({h, shared}, {Axis::tp, 1})});
    return specs;
  }
  const std::int64_t f = m.intermediate_size;
  if (config::family_of(m).mlp != config::MlpKind::gelu)
    return {cut({2 * f, h}, gate_up(Axis::tp, 0, f)), cut({h, f}, {Axis::tp, 1})};
  return {cut({f, h}, {Axis::tp, 0}), cut({f}, {Axis::tp, 0}), cut({h, f}, {Axis::tp, 1}), whole({h})};
}

/// A registered family: layers may differ, and all count as the largest one.
void set_own_layers(LocalParameters& out, const ModelConfig& m, const ParamLayout& layout, std::int64_t expert_ranks) {
  const config::OwnParameters own = config::own_parameters(m);
  std::int64_t most = -1;
  for (const Specs& layer : own.layers) {
    UnitTensors dense, experts;
    for (const ParamSpec& spec : layer)
      if (spec.placement.view == View::expert)
        experts.push_back(numel(spec.shape) / expert_ranks);
      else
        dense.push_back(numel(layout.local_shape(spec)));
    if (elements(dense) + elements(experts) <= most) continue;
    most = elements(dense) + elements(experts);
    out.layer = std::move(dense);
    out.experts = std::move(experts);
  }
  out.head.clear();
  for (const ParamSpec& spec : own.norm) out.head.push_back(numel(layout.local_shape(spec)));
  if (!m.tie_word_embeddings) out.head.push_back(out.head_weight);
}

}  // namespace

std::int64_t elements(const UnitTensors& unit) { return std::accumulate(unit.begin(), unit.end(), std::int64_t{0}); }

LocalParameters local_parameters(const ModelConfig& m, std::int64_t tp, std::int64_t ep, std::int64_t expert_tp) {
  const ParamLayout layout(Grid({{Axis::tp, static_cast<int>(tp)}}));
  const auto local = [&](const Specs& specs) {
    UnitTensors sizes;
    for (const ParamSpec& spec : specs) sizes.push_back(numel(layout.local_shape(spec)));
    return sizes;
  };
  const ParamSpec head_weight = cut({m.vocab_size, m.hidden_size}, vocabulary_rows(Axis::tp, 0));
  Specs embedding = {head_weight}, layer = norm_specs(m), head = norm_specs(m);
  if (config::family_of(m).positions == config::PositionKind::learned)
    embedding.push_back(whole({m.max_position_embeddings, m.hidden_size}));
  append(layer, attention_specs(m));
  append(layer, norm_specs(m));
  append(layer, mlp_specs(m));
  if (!m.tie_word_embeddings) head.push_back(head_weight);
  // Gate, up and down of the experts of a rank.
  const std::int64_t matrix = m.num_local_experts / ep * m.hidden_size *
                              (m.moe_intermediate_size > 0 ? m.moe_intermediate_size : m.intermediate_size) /
                              (expert_tp > 0 ? expert_tp : tp);
  LocalParameters out{.embedding = local(embedding),
                      .layer = local(layer),
                      .experts = m.num_local_experts > 0 ? UnitTensors{2 * matrix, matrix} : UnitTensors{},
                      .head = local(head),
                      .layers = m.num_hidden_layers,
                      .head_weight = local({head_weight})[0]};
  if (config::family_of(m).is_registered()) set_own_layers(out, m, layout, ep * (expert_tp > 0 ? expert_tp : tp));
  return out;
}

}  // namespace trireme::config
