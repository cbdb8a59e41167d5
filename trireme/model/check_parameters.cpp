#include "trireme/model/check_parameters.hpp"

#include <map>

#include "trireme/base/error.hpp"
#include "trireme/describe/parameters.hpp"

namespace trireme {
namespace {

std::map<std::string, ParamSpec> described_parameters(const ModelConfig& model, const DecoderPart& part) {
  std::map<std::string, ParamSpec> out;
  const ModelParameters parameters = model_parameters(model);
  if (part.has_embedding)
    for (const Parameter& parameter : parameters.begin) out.emplace(parameter.name, parameter.spec);
  for (const SimilarLayers& similar : parameters.layers)
    for (std::int64_t i = std::max(similar.layers.begin, part.layers.begin);
         i < std::min(similar.layers.end, part.layers.end); ++i)
      for (const Parameter& parameter : similar.parameters)
        out.emplace(text("layers.", i, ".", parameter.name), parameter.spec);
  if (!part.has_head) return out;
  for (const Parameter& parameter : parameters.end) out.emplace(parameter.name, parameter.spec);
  if (model.tie_word_embeddings) out.emplace(parameters.begin.front().name, parameters.begin.front().spec);
  return out;
}

/// "" if there is none.
const char* difference(const ParamSpec& declared, const ParamSpec& described) {
  if (declared.shape != described.shape) return "another shape";
  if (declared.placement != described.placement) return "another placement";
  if (declared.fill != described.fill || declared.fan_in != described.fan_in) return "other initial values";
  return "";
}

}  // namespace

void check_parameters(const std::vector<Param>& declared, const ModelConfig& model, const DecoderPart& part) {
  std::map<std::string, ParamSpec> described = described_parameters(model, part);
  for (const Param& param : declared) {
    const auto found = described.find(param.name);
    require(found != described.end(), param.name, ": a layer declares it, and describe/ does not list it for a ",
            model.model_type, " model");
    const std::string_view what = difference(param.spec, found->second);
    require(what.empty(), param.name, ": its layer declares ", what, " than describe/ lists for a ", model.model_type,
            " model: ", tuple_text(param.spec.shape), " next to ", tuple_text(found->second.shape));
    described.erase(found);
  }
  require(described.empty(), described.empty() ? "" : described.begin()->first, ": describe/ lists it for a ",
          model.model_type, " model, and no layer declares it");
}

}  // namespace trireme
