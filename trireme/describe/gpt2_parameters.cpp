#include "trireme/describe/family_parameters.hpp"

namespace trireme {
namespace {

Parameter transposed(Parameter matrix) {
  matrix.transposed = true;
  return matrix;
}

Parameter norm_bias(const std::string& name, std::int64_t features, const std::string& theirs) {
  return norm_weight(name, features, theirs, Fill::zeros);
}

std::vector<Parameter> layer_parameters(const ModelConfig& m) {
  const std::int64_t h = m.hidden_size, f = m.intermediate_size, qkv_rows = query_width(m) + 2 * kv_width(m);
  const Parameter qkv = column_weight("attention.qkv.weight", ParameterKind::attention, {qkv_rows, h},
                                      attention_heads(m), {{"attn.c_attn.weight", qkv_rows}}),
                  out = row_weight("attention.out.weight", ParameterKind::attention, {h, query_width(m)},
                                   "attn.c_proj.weight"),
                  up = column_weight("mlp.up.weight", ParameterKind::mlp, {f, h}, {Axis::tp, 0},
                                     {{"mlp.c_fc.weight", f}}),
                  down = row_weight("mlp.down.weight", ParameterKind::mlp, {h, f}, "mlp.c_proj.weight");
  std::vector<Parameter> parameters = {norm_weight("attention_norm.weight", h, "ln_1.weight"),
                                       transposed(qkv),
                                       transposed(out),
                                       norm_weight("mlp_norm.weight", h, "ln_2.weight"),
                                       transposed(up),
                                       transposed(down),
                                       norm_bias("attention_norm.bias", h, "ln_1.bias"),
                                       column_bias(qkv, "attention.qkv.bias", {{"attn.c_attn.bias", qkv_rows}}),
                                       row_bias(out, "attention.out.bias", "attn.c_proj.bias"),
                                       norm_bias("mlp_norm.bias", h, "ln_2.bias"),
                                       column_bias(up, "mlp.up.bias", {{"mlp.c_fc.bias", f}}),
                                       row_bias(down, "mlp.down.bias", "mlp.c_proj.bias")};
  if (m.qk_norm)
    for (Parameter& norm : head_norms(m, "")) parameters.push_back(std::move(norm));
  return parameters;
}

}  // namespace

ModelParameters gpt2_parameters(const ModelConfig& m) {
  const std::int64_t h = m.hidden_size, positions = m.max_position_embeddings;
  ModelParameters out{.begin = {vocabulary_parameter(m, "embedding.weight", ParameterKind::embedding, Fill::embedding,
                                                     "transformer.wte.weight"),
                                {.name = "positions.weight",
                                 .kind = ParameterKind::positions,
                                 .spec = {.shape = {positions, h}, .fill = Fill::embedding},
                                 .theirs = {{"transformer.wpe.weight", positions}}}},
                      .layers = {{.layers = {0, m.num_hidden_layers}, .parameters = layer_parameters(m)}},
                      .end = {norm_weight("norm.weight", h, "transformer.ln_f.weight"),
                              norm_bias("norm.bias", h, "transformer.ln_f.bias")},
                      .their_layers = "transformer.h."};
  if (!m.tie_word_embeddings)
    out.end.push_back(vocabulary_parameter(m, "head.weight", ParameterKind::head, Fill::weight, "lm_head.weight"));
  return out;
}

}  // namespace trireme
