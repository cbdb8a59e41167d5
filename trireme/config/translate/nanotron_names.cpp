#include "trireme/config/translate/nanotron_names.hpp"

#include <algorithm>
#include <regex>

#include "trireme/base/error.hpp"
#include "trireme/base/name_pattern.hpp"

namespace trireme::config {
namespace {

/// A parameter of nanotron, and the part of ours that has the same values. * is the number of a layer.
struct NanotronName {
  const char* theirs;
  const char* ours;
};
constexpr NanotronName kNames[] = {
    {"model.token_position_embeddings.pp_block.token_embedding.weight", "embedding.weight"},
    {"model.decoder.*.pp_block.input_layernorm.weight", "layers.*.attention_norm.weight"},
    {"model.decoder.*.pp_block.attn.qkv_proj.weight", "layers.*.attention.qkv.weight"},
    {"model.decoder.*.pp_block.attn.qkv_proj.bias", "layers.*.attention.qkv.bias"},
    {"model.decoder.*.pp_block.attn.o_proj.weight", "layers.*.attention.out.weight"},
    {"model.decoder.*.pp_block.attn.q_norm.weight", "layers.*.attention.q_norm.weight"},
    {"model.decoder.*.pp_block.attn.k_norm.weight", "layers.*.attention.k_norm.weight"},
    {"model.decoder.*.pp_block.post_attention_layernorm.weight", "layers.*.mlp_norm.weight"},
    {"model.decoder.*.pp_block.mlp.gate_up_proj.weight", "layers.*.mlp.gate_up.weight"},
    {"model.decoder.*.pp_block.mlp.down_proj.weight", "layers.*.mlp.down.weight"},
    {"model.final_layer_norm.pp_block.weight", "norm.weight"},
    {"model.lm_head.pp_block.weight", "head.weight"},
};

std::string in_layer(std::string name, std::int64_t layer) {
  if (const std::size_t star = name.find('*'); star != std::string::npos) name.replace(star, 1, std::to_string(layer));
  return name;
}

std::regex compiled(const std::string& expression) {
  try {
    return checked_regex(expression);
  } catch (const ConfigError& e) {
    throw ConfigError(text("weight_decay_exclude_named_params: ", e.what(),
                           "\n  fix: set optimizer.no_decay in the file that is written"));
  }
}

}  // namespace

std::string nanotron_name(const std::string& ours) {
  const std::string_view layers = "layers.";
  std::string layer, pattern = ours;
  if (ours.starts_with(layers)) {
    layer = ours.substr(layers.size(), ours.find('.', layers.size()) - layers.size());
    pattern = text(layers, "*", ours.substr(layers.size() + layer.size()));
  }
  for (const auto& [theirs, name] : kNames) {
    if (pattern != name) continue;
    std::string found = theirs;
    if (!layer.empty()) found.replace(found.find('*'), 1, layer);
    return found;
  }
  throw InternalError(text("nanotron has no parameter for ", ours));
}

NoDecay translate_no_decay(const std::vector<std::string>& expressions, const ModelConfig& model) {
  NoDecay out;
  const auto add = [&](const std::string& pattern) {
    if (std::ranges::find(out.patterns, pattern) == out.patterns.end()) out.patterns.push_back(pattern);
  };
  const std::int64_t layers = std::max<std::int64_t>(1, model.num_hidden_layers);
  for (const std::string& expression : expressions) {
    const std::regex regex = compiled(expression);
    bool any = false;
    for (const auto& [theirs, name] : kNames) {
      // A tied head is the embedding; nanotron looks at both names.
      const std::string ours =
          model.tie_word_embeddings && std::string(name) == "head.weight" ? "embedding.weight" : name;
      std::vector<std::string> matched;
      const bool in_layers = ours.find('*') != std::string::npos;
      for (std::int64_t layer = 0; layer < (in_layers ? layers : 1); ++layer)
        if (std::regex_search(in_layer(theirs, layer), regex, std::regex_constants::match_continuous))
          matched.push_back(in_layer(ours, layer));
      any = any || !matched.empty();
      if (in_layers && static_cast<std::int64_t>(matched.size()) == layers)
        add(ours);
      else
        std::ranges::for_each(matched, add);
    }
    if (!any) out.unmatched.push_back(expression);
  }
  return out;
}

}  // namespace trireme::config
