#include "trireme/describe/weight_names.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/registered_families.hpp"
#include "trireme/describe/parameters.hpp"

namespace trireme {
namespace {

std::string with_expert(std::string pattern, std::int64_t expert) {
  constexpr std::string_view kNumber = "{expert}";
  return pattern.replace(pattern.find(kNumber), kNumber.size(), std::to_string(expert));
}

void add_names(const Parameter& parameter, std::int64_t expert, std::vector<WeightName>& names) {
  std::int64_t first = 0;
  for (const TheirTensor& tensor : parameter.theirs) {
    names.push_back({.ours = parameter.name,
                     .theirs = expert < 0 ? tensor.name : with_expert(tensor.name, expert),
                     .first_row = first,
                     .rows = tensor.rows,
                     .transposed = parameter.transposed,
                     .expert = expert});
    first += tensor.rows;
  }
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
  std::vector<WeightName> names;
  for (const Parameter& parameter : all_parameters(model)) {
    if (parameter.kind != ParameterKind::expert) add_names(parameter, -1, names);
    for (std::int64_t e = 0; parameter.kind == ParameterKind::expert && e < parameter.spec.shape[0]; ++e)
      add_names(parameter, e, names);
  }
  return names;
}

}  // namespace trireme
