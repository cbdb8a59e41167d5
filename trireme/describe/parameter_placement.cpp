#include "trireme/describe/parameter_placement.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/registered_families.hpp"

namespace trireme {
namespace {

constexpr std::string_view kLayers = "layers.";

/// The parameter within its layer: "attention.qkv.weight"; the whole name outside of the layers.
std::string_view name_in_layer(std::string_view name) {
  return name.starts_with(kLayers) ? name.substr(name.find('.', kLayers.size()) + 1) : name;
}

}  // namespace

Placement parameter_placement(const ModelConfig& m, std::string_view name) {
  config::require_built_in(m, "the placement of parameters");
  const std::string_view inner = name_in_layer(name);
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, inner) != names.end();
  };
  const auto cut = [](Cut how) { return Placement{.cuts = {std::move(how)}}; };
  if (is({"embedding.weight", "head.weight"})) return cut(vocabulary_rows(Axis::tp, 0));
  if (is({"attention.qkv.weight", "attention.qkv.bias"}))
    return cut(fused_qkv(Axis::tp, 0, m.num_attention_heads, m.num_key_value_heads, m.head_dim));
  if (is({"mlp.gate_up.weight"})) return cut(gate_up(Axis::tp, 0, m.intermediate_size));
  if (is({"mlp.shared.gate_up.weight"})) return cut(gate_up(Axis::tp, 0, m.shared_expert_intermediate_size));
  if (inner.starts_with("mlp.expert_")) {
    const bool is_down = inner == "mlp.expert_down";
    const std::int64_t width = m.moe_intermediate_size > 0 ? m.moe_intermediate_size : m.intermediate_size;
    return {.cuts = {{Axis::ep, 0}, is_down ? Cut{Axis::tp, 2} : gate_up(Axis::tp, 1, width)}, .view = View::expert};
  }
  if (is({"mlp.up.weight", "mlp.up.bias"})) return cut({Axis::tp, 0});
  if (is({"attention.out.weight", "mlp.down.weight", "mlp.shared.down.weight"})) return cut({Axis::tp, 1});
  const bool whole = is({"positions.weight", "attention.out.bias", "mlp.down.bias", "mlp.router.weight",
                         "mlp.router.selection_bias"}) ||
                     inner.ends_with("norm.weight") || inner.ends_with("norm.bias");
  require(whole, "a parameter named ", name, ": no family has it");
  return {};
}

}  // namespace trireme
