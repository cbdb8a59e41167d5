#include "trireme/describe/local_parameters.hpp"

#include <numeric>

#include "trireme/describe/parameters.hpp"
#include "trireme/layout/param_layout.hpp"

namespace trireme::config {

std::int64_t elements(const UnitTensors& unit) { return std::accumulate(unit.begin(), unit.end(), std::int64_t{0}); }

LocalParameters local_parameters(const ModelConfig& m, std::int64_t tp, std::int64_t ep, std::int64_t expert_tp) {
  const ParamLayout layout(Grid({{Axis::tp, static_cast<int>(tp)}}));
  const std::int64_t expert_ranks = ep * (expert_tp > 0 ? expert_tp : tp);
  const auto local = [&](const Parameter& parameter) {
    return parameter.is_of_experts() ? parameter.elements() / expert_ranks : numel(layout.local_shape(parameter.spec));
  };
  const auto add = [&](const std::vector<Parameter>& parameters, UnitTensors& dense, UnitTensors& experts) {
    for (const Parameter& parameter : parameters)
      (parameter.is_of_experts() ? experts : dense).push_back(local(parameter));
  };
  const ModelParameters parameters = model_parameters(m);
  LocalParameters out;
  out.layers = m.num_hidden_layers;
  out.head_weight = local(parameters.begin.front());
  UnitTensors none;
  add(parameters.begin, out.embedding, none);
  add(parameters.end, out.head, none);
  std::int64_t most = -1;
  for (const SimilarLayers& similar : parameters.layers) {  // where layers differ, all count as the largest one
    UnitTensors dense, experts;
    add(similar.parameters, dense, experts);
    if (elements(dense) + elements(experts) <= most) continue;
    most = elements(dense) + elements(experts);
    out.layer = std::move(dense);
    out.experts = std::move(experts);
  }
  return out;
}

}  // namespace trireme::config
