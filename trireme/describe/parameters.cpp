#include "trireme/describe/parameters.hpp"

#include <algorithm>
#include <charconv>

#include "trireme/base/error.hpp"
#include "trireme/describe/family_parameters.hpp"

namespace trireme {
namespace {

std::string layer_prefix(std::int64_t layer) { return text("layers.", layer, "."); }
std::string their_prefix(const ModelParameters& parameters, std::int64_t layer) {
  return text(parameters.their_layers, layer, ".");
}

/// Calls visit(parameter, prefix of ours, prefix of theirs) for each, in order.
template <class Visit>
void for_each_parameter(const ModelParameters& parameters, Visit&& visit) {
  for (const Parameter& parameter : parameters.begin) visit(parameter, std::string(), std::string());
  for (const SimilarLayers& similar : parameters.layers)
    for (std::int64_t i = similar.layers.begin; i < similar.layers.end; ++i) {
      const std::string ours = layer_prefix(i), theirs = their_prefix(parameters, i);
      for (const Parameter& parameter : similar.parameters) visit(parameter, ours, theirs);
    }
  for (const Parameter& parameter : parameters.end) visit(parameter, std::string(), std::string());
}

Parameter with_prefixes(Parameter parameter, const std::string& ours, const std::string& theirs) {
  parameter.name.insert(0, ours);
  for (TheirTensor& tensor : parameter.theirs) tensor.name.insert(0, theirs);
  return parameter;
}

}  // namespace

ModelParameters model_parameters(const ModelConfig& model) {
  const config::FamilyInfo& family = config::family_of(model);
  ModelParameters parameters =
      family.hf.names == config::HfNames::gpt2 ? gpt2_parameters(model) : llama_parameters(model);
  return family.is_registered() ? registered_parameters(model, std::move(parameters)) : parameters;
}

std::vector<Parameter> all_parameters(const ModelConfig& model) {
  std::vector<Parameter> out;
  for_each_parameter(model_parameters(model),
                     [&](const Parameter& parameter, const std::string& ours, const std::string& theirs) {
                       out.push_back(with_prefixes(parameter, ours, theirs));
                     });
  return out;
}

std::vector<std::string> parameter_names(const ModelConfig& model) {
  std::vector<std::string> names;
  for_each_parameter(model_parameters(model), [&](const Parameter& parameter, const std::string& ours,
                                                  const std::string&) { names.push_back(ours + parameter.name); });
  return names;
}

std::pair<std::string_view, std::int64_t> without_layer(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  std::int64_t layer = -1;
  if (!name.starts_with(kLayers)) return {name, -1};
  const auto [end, error] = std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return {name, -1};
  return {name.substr(static_cast<std::size_t>(end + 1 - name.data())), layer};
}

Parameter parameter_named(const ModelConfig& model, std::string_view name) {
  const ModelParameters parameters = model_parameters(model);
  const auto [inner, layer] = without_layer(name);
  const auto find = [&, wanted = inner](const std::vector<Parameter>& in) {
    const auto found = std::ranges::find(in, wanted, &Parameter::name);
    return found == in.end() ? nullptr : &*found;
  };
  const Parameter* found = nullptr;
  if (layer < 0) {
    found = find(parameters.begin);
    if (found == nullptr) found = find(parameters.end);
  }
  for (const SimilarLayers& similar : parameters.layers)
    if (similar.layers.begin <= layer && layer < similar.layers.end) found = find(similar.parameters);
  require<ConfigError>(found != nullptr, name, ": a ", model.model_type, " model has no such parameter");
  return layer < 0 ? *found : with_prefixes(*found, layer_prefix(layer), their_prefix(parameters, layer));
}

}  // namespace trireme
