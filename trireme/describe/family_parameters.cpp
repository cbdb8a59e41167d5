#include "trireme/describe/family_parameters.hpp"

#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/registered_families.hpp"

namespace trireme {
namespace {

Placement cut_by(Cut how) { return {.cuts = {std::move(how)}}; }

}  // namespace

Parameter vocabulary_parameter(const ModelConfig& m, const std::string& name, ParameterKind kind, Fill fill,
                               const std::string& theirs) {
  return {
      .name = name,
      .kind = kind,
      .spec = {.shape = {m.vocab_size, m.hidden_size}, .placement = cut_by(vocabulary_rows(Axis::tp, 0)), .fill = fill},
      .theirs = {{theirs, m.vocab_size}}};
}

Parameter norm_weight(const std::string& name, std::int64_t features, const std::string& theirs, Fill fill) {
  return {.name = name,
          .kind = ParameterKind::norm,
          .spec = {.shape = {features}, .fill = fill},
          .theirs = {{theirs, features}}};
}

Parameter column_weight(const std::string& name, ParameterKind kind, Shape shape, Cut how,
                        std::vector<TheirTensor> theirs) {
  return {.name = name,
          .kind = kind,
          .spec = {.shape = std::move(shape), .placement = cut_by(std::move(how))},
          .theirs = std::move(theirs)};
}

Parameter column_bias(const Parameter& weight, const std::string& name, std::vector<TheirTensor> theirs) {
  const Shape& shape = weight.spec.shape;
  return {.name = name,
          .kind = weight.kind,
          .spec = {.shape = {shape[0]}, .placement = weight.spec.placement, .fill = Fill::bias, .fan_in = shape[1]},
          .theirs = std::move(theirs)};
}

Parameter row_weight(const std::string& name, ParameterKind kind, Shape shape, const std::string& theirs) {
  const std::int64_t rows = shape[0];
  return {.name = name,
          .kind = kind,
          .spec = {.shape = std::move(shape), .placement = cut_by({Axis::tp, 1}), .fill = Fill::residual_weight},
          .theirs = {{theirs, rows}}};
}

Parameter row_bias(const Parameter& weight, const std::string& name, const std::string& theirs) {
  const Shape& shape = weight.spec.shape;
  return {.name = name,
          .kind = weight.kind,
          .spec = {.shape = {shape[0]}, .fill = Fill::bias, .fan_in = shape[1]},
          .theirs = {{theirs, shape[0]}}};
}

std::vector<Parameter> head_norms(const ModelConfig& m, const std::string& theirs) {
  std::vector<Parameter> norms;
  for (const char* name : {"q_norm.weight", "k_norm.weight"}) {
    norms.push_back(norm_weight(text("attention.", name), m.head_dim, theirs + name));
    if (theirs.empty()) norms.back().theirs.clear();
  }
  return norms;
}

Cut attention_heads(const ModelConfig& m) {
  return fused_qkv(Axis::tp, 0, m.num_attention_heads, m.num_key_value_heads, m.head_dim);
}
std::int64_t query_width(const ModelConfig& m) { return m.num_attention_heads * m.head_dim; }
std::int64_t kv_width(const ModelConfig& m) { return m.num_key_value_heads * m.head_dim; }

std::int64_t expert_width(const ModelConfig& m) {
  return m.moe_intermediate_size > 0 ? m.moe_intermediate_size : m.intermediate_size;
}

ModelParameters registered_parameters(const ModelConfig& m, ModelParameters like) {
  config::OwnParameters own = config::own_parameters(m);
  const auto with_kind = [](std::vector<config::NamedSpec> specs, ParameterKind kind) {
    std::vector<Parameter> out;
    for (auto& [name, spec] : specs) out.push_back({.name = std::move(name), .kind = kind, .spec = std::move(spec)});
    return out;
  };
  ModelParameters out;
  out.begin = std::move(like.begin);
  out.end = with_kind(own.norm, ParameterKind::norm);
  for (std::size_t i = 0; i < own.layers.size(); ++i)
    out.layers.push_back({.layers = {static_cast<std::int64_t>(i), static_cast<std::int64_t>(i) + 1},
                          .parameters = with_kind(std::move(own.layers[i]), ParameterKind::other)});
  for (Parameter& parameter : like.end)
    if (parameter.kind == ParameterKind::head) out.end.push_back(std::move(parameter));
  for (std::vector<Parameter>* part : {&out.begin, &out.end})
    for (Parameter& parameter : *part) parameter.theirs.clear();
  return out;
}

}  // namespace trireme
