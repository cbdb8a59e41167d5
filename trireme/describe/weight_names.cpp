#include "trireme/describe/weight_names.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/config/schema/registered_families.hpp"

namespace trireme {
namespace {

class WeightTable {
 public:
  /// One to one.
  void add(const std::string& ours, const std::string& theirs, std::int64_t rows, bool transposed = false) {
    names_.push_back({.ours = ours, .theirs = theirs, .rows = rows, .transposed = transposed});
  }
  struct Part {
    std::string theirs;
    std::int64_t rows;
  };
  /// Ours is the concatenation of their tensors along the rows.
  void add_fused(const std::string& ours, const std::vector<Part>& parts, std::int64_t expert = -1) {
    std::int64_t first = 0;
    for (const Part& part : parts) {
      names_.push_back({.ours = ours, .theirs = part.theirs, .first_row = first, .rows = part.rows, .expert = expert});
      first += part.rows;
    }
  }
  std::vector<WeightName> take() { return std::move(names_); }

 private:
  std::vector<WeightName> names_;
};

std::vector<WeightName> gpt2_names(const ModelConfig& m) {
  WeightTable table;
  const std::int64_t h = m.hidden_size, f = m.intermediate_size;
  table.add("embedding.weight", "transformer.wte.weight", m.vocab_size);
  table.add("positions.weight", "transformer.wpe.weight", m.max_position_embeddings);
  for (std::int64_t i = 0; i < m.num_hidden_layers; ++i) {
    const std::string ours = text("layers.", i, "."), theirs = text("transformer.h.", i, ".");
    for (const char* what : {"weight", "bias"}) {
      const std::string w = what;
      const bool matrix = w == "weight";
      table.add(ours + "attention_norm." + w, theirs + "ln_1." + w, h);
      table.add(ours + "attention.qkv." + w, theirs + "attn.c_attn." + w, 3 * h, matrix);
      table.add(ours + "attention.out." + w, theirs + "attn.c_proj." + w, h, matrix);
      table.add(ours + "mlp_norm." + w, theirs + "ln_2." + w, h);
      table.add(ours + "mlp.up." + w, theirs + "mlp.c_fc." + w, f, matrix);
      table.add(ours + "mlp.down." + w, theirs + "mlp.c_proj." + w, h, matrix);
    }
  }
  table.add("norm.weight", "transformer.ln_f.weight", h);
  table.add("norm.bias", "transformer.ln_f.bias", h);
  if (!m.tie_word_embeddings) table.add("head.weight", "lm_head.weight", m.vocab_size);
  return table.take();
}

std::int64_t expert_width(const ModelConfig& m) {
  return m.moe_intermediate_size > 0 ? m.moe_intermediate_size : m.intermediate_size;
}

void add_dense_mlp(WeightTable& table, const std::string& ours, const std::string& theirs, std::int64_t hidden,
                   std::int64_t width) {
  table.add_fused(ours + "gate_up.weight", {{theirs + "gate_proj.weight", width}, {theirs + "up_proj.weight", width}});
  table.add(ours + "down.weight", theirs + "down_proj.weight", hidden);
}

/// What transformers' Mixtral and Qwen3-MoE do not have is named as in DeepSeek-V3.
void add_experts(WeightTable& table, const ModelConfig& m, const std::string& ours, const std::string& layer) {
  const bool is_mixtral = config::family_of(m).hf.experts == config::HfExperts::mixtral;
  const std::string theirs = layer + (is_mixtral ? "block_sparse_moe." : "mlp.");
  const std::string gate = is_mixtral ? "w1" : "gate_proj", up = is_mixtral ? "w3" : "up_proj",
                    down = is_mixtral ? "w2" : "down_proj";
  const auto name = [&](std::int64_t expert, const std::string& what) {
    return text(theirs, "experts.", expert, ".", what, ".weight");
  };
  const std::int64_t width = expert_width(m);
  for (std::int64_t e = 0; e < m.num_local_experts; ++e)
    table.add_fused(ours + "expert_gate_up", {{name(e, gate), width}, {name(e, up), width}}, e);
  for (std::int64_t e = 0; e < m.num_local_experts; ++e)
    table.add_fused(ours + "expert_down", {{name(e, down), m.hidden_size}}, e);
  table.add(ours + "router.weight", theirs + "gate.weight", m.num_local_experts);
  if (m.router_bias_update_rate > 0)
    table.add(ours + "router.selection_bias", theirs + "gate.e_score_correction_bias", m.num_local_experts);
  if (m.shared_expert_intermediate_size > 0)
    add_dense_mlp(table, ours + "shared.", theirs + "shared_experts.", m.hidden_size,
                  m.shared_expert_intermediate_size);
}

/// All but GPT-2: they differ in biases, in the norms of q and k, and in their MLPs.
std::vector<WeightName> llama_names(const ModelConfig& m) {
  WeightTable table;
  const std::int64_t h = m.hidden_size, d = m.head_dim;
  const std::int64_t q = m.num_attention_heads * d, kv = m.num_key_value_heads * d;
  table.add("embedding.weight", "model.embed_tokens.weight", m.vocab_size);
  for (std::int64_t i = 0; i < m.num_hidden_layers; ++i) {
    const std::string ours = text("layers.", i, "."), theirs = text("model.layers.", i, ".");
    const auto add_qkv = [&](const std::string& what) {
      table.add_fused(ours + "attention.qkv." + what, {{theirs + "self_attn.q_proj." + what, q},
                                                       {theirs + "self_attn.k_proj." + what, kv},
                                                       {theirs + "self_attn.v_proj." + what, kv}});
    };
    table.add(ours + "attention_norm.weight", theirs + "input_layernorm.weight", h);
    add_qkv("weight");
    if (config::has_qkv_bias(m)) add_qkv("bias");
    table.add(ours + "attention.out.weight", theirs + "self_attn.o_proj.weight", h);
    if (config::has_out_bias(m)) table.add(ours + "attention.out.bias", theirs + "self_attn.o_proj.bias", h);
    if (m.qk_norm) {
      table.add(ours + "attention.q_norm.weight", theirs + "self_attn.q_norm.weight", d);
      table.add(ours + "attention.k_norm.weight", theirs + "self_attn.k_norm.weight", d);
    }
    table.add(ours + "mlp_norm.weight", theirs + "post_attention_layernorm.weight", h);
    if (m.num_local_experts > 0)
      add_experts(table, m, ours + "mlp.", theirs);
    else
      add_dense_mlp(table, ours + "mlp.", theirs + "mlp.", h, m.intermediate_size);
  }
  table.add("norm.weight", "model.norm.weight", h);
  if (!m.tie_word_embeddings) table.add("head.weight", "lm_head.weight", m.vocab_size);
  return table.take();
}

}  // namespace

std::optional<WeightPart> part_of_weight(const WeightName& name, const Box& box) {
  const bool of_expert = name.expert >= 0;
  WeightPart part{.ours = box, .theirs = {}};
  if (of_expert) part.ours[0] = {std::max(box[0].begin, name.expert), std::min(box[0].end, name.expert + 1)};
  Range& rows = part.ours[of_expert ? 1 : 0];
  rows = {std::max(rows.begin, name.first_row), std::min(rows.end, name.first_row + name.rows)};
  for (const Range& side : part.ours)
    if (side.begin >= side.end) return std::nullopt;
  part.theirs.assign(part.ours.begin() + (of_expert ? 1 : 0), part.ours.end());
  part.theirs[0] = {rows.begin - name.first_row, rows.end - name.first_row};
  if (name.transposed) std::swap(part.theirs[0], part.theirs[1]);
  return part;
}

Shape their_shape(const WeightName& name, const Shape& ours) {
  Shape shape(ours.begin() + (name.expert >= 0 ? 1 : 0), ours.end());
  shape[0] = name.rows;
  if (name.transposed) std::swap(shape[0], shape[1]);
  return shape;
}

std::vector<WeightName> weight_names(const ModelConfig& model) {
  config::require_built_in(model, "names of weights");
  return config::family_of(model).hf.names == config::HfNames::gpt2 ? gpt2_names(model) : llama_names(model);
}

std::vector<ParameterShape> parameter_shapes(const ModelConfig& model) {
  std::vector<ParameterShape> parameters;
  for (const WeightName& weight : weight_names(model)) {
    if (parameters.empty() || parameters.back().name != weight.ours) parameters.push_back({weight.ours, {0}});
    if (weight.expert <= 0) parameters.back().shape[0] += weight.rows;
  }
  for (auto& [name, shape] : parameters) {
    if (name.ends_with("bias") || name.ends_with("norm.weight")) continue;
    const auto inputs = [&] {
      if (name.ends_with(".attention.out.weight")) return model.num_attention_heads * model.head_dim;
      if (name.ends_with(".mlp.down.weight")) return model.intermediate_size;
      if (name.ends_with(".mlp.shared.down.weight")) return model.shared_expert_intermediate_size;
      return name.ends_with(".mlp.expert_down") ? expert_width(model) : model.hidden_size;
    };
    shape.push_back(inputs());
    if (name.find(".mlp.expert_") != std::string::npos) shape.insert(shape.begin(), model.num_local_experts);
  }
  return parameters;
}

std::vector<std::string> parameter_names(const ModelConfig& model) {
  std::vector<std::string> names;
  for (WeightName& weight : weight_names(model))
    if (names.empty() || names.back() != weight.ours) names.push_back(std::move(weight.ours));
  return names;
}

}  // namespace trireme
