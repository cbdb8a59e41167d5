#include "trireme/config/schema/parameter_placement.hpp"

#include <algorithm>
#include <charconv>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/counts.hpp"
#include "trireme/layout/split.hpp"
#include "trireme/schedule/generate.hpp"

namespace trireme {
namespace {

constexpr std::string_view kLayers = "layers.";

/// The parameter within its layer: "attention.qkv.weight"; the whole name outside of the layers.
std::string_view name_in_layer(std::string_view name) {
  return name.starts_with(kLayers) ? name.substr(name.find('.', kLayers.size()) + 1) : name;
}

std::vector<Range> layers_of_chunks(const ModelConfig& m, const ParallelismConfig& p, int chunks) {
  if (!p.stages.empty()) {
    std::vector<Range> out;
    for (const std::int64_t layers : p.stages) {
      const std::int64_t begin = out.empty() ? 0 : out.back().end;
      out.push_back({begin, begin + layers});
    }
    return out;
  }
  const config::ParameterCounts counts = config::count_parameters(m);
  const auto layers = static_cast<std::size_t>(m.num_hidden_layers);
  const double cost = static_cast<double>(counts.attention + counts.mlp) / static_cast<double>(layers);
  const double head = static_cast<double>(m.vocab_size) * static_cast<double>(m.hidden_size);
  return layers_over_stages(std::vector<double>(layers, cost), chunks, 0, head);
}

}  // namespace

Placement parameter_placement(const ModelConfig& m, std::string_view name) {
  const std::string_view inner = name_in_layer(name);
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, inner) != names.end();
  };
  const auto cut = [](Cut how) { return Placement{.cuts = {std::move(how)}}; };
  if (is({"embedding.weight", "head.weight"})) return cut({Axis::tp, 0, {}, /*padded=*/true});
  if (is({"attention.qkv.weight", "attention.qkv.bias"}))
    return cut(fused_qkv(Axis::tp, 0, m.num_attention_heads, m.num_key_value_heads, m.head_dim));
  if (is({"mlp.gate_up.weight"})) return cut(gate_up(Axis::tp, 0, m.intermediate_size));
  if (is({"mlp.up.weight", "mlp.up.bias"})) return cut({Axis::tp, 0});
  if (is({"attention.out.weight", "mlp.down.weight"})) return cut({Axis::tp, 1});
  const bool whole = is({"positions.weight", "attention.out.bias", "mlp.down.bias"}) ||
                     inner.ends_with("norm.weight") || inner.ends_with("norm.bias");
  require(whole, "a parameter named ", name, ": no family has it");
  return {};
}

std::vector<PipelineChunk> pipeline_chunks(const ModelConfig& m, const ParallelismConfig& p) {
  const std::vector<int> stages =
      schedule::make_schedule(p.pp_schedule, static_cast<int>(p.pp), 1, static_cast<int>(p.virtual_stages))
          .rank_of_chunk;
  const std::vector<Range> layers = layers_of_chunks(m, p, static_cast<int>(stages.size()));
  require<ConfigError>(layers.size() == stages.size() && layers.back().end == m.num_hidden_layers,
                       "parallelism.stages has ", layers.size(), " chunks with ", layers.back().end,
                       " layers: the pipeline has ", stages.size(), ", the model ", m.num_hidden_layers);
  std::vector<PipelineChunk> chunks;
  for (std::size_t c = 0; c < stages.size(); ++c) chunks.push_back({stages[c], layers[c]});
  return chunks;
}

int stage_of_parameter(const std::vector<PipelineChunk>& chunks, std::string_view name) {
  if (!name.starts_with(kLayers)) {
    const bool at_the_begin = name.starts_with("embedding.") || name.starts_with("positions.");
    return (at_the_begin ? chunks.front() : chunks.back()).stage;
  }
  std::int64_t layer = -1;
  std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
  const auto holds = [&](const PipelineChunk& chunk) {
    return chunk.layers.begin <= layer && layer < chunk.layers.end;
  };
  const auto chunk = std::ranges::find_if(chunks, holds);
  require(chunk != chunks.end(), name, " is in none of the ", chunks.size(), " chunks of the model");
  return chunk->stage;
}

}  // namespace trireme
