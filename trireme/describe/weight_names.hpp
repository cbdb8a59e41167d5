#pragma once
// A model's parameters as tensors of a Hugging Face folder.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/schema/config.hpp"
#include "trireme/layout/slices.hpp"

namespace trireme {

/// `rows` rows of our parameter, from `first_row` on, are one of their tensors: one of several if ours is fused (q, k
/// and v; gate and up). The weights of all experts are one parameter of ours, [experts, rows, columns].
struct WeightName {
  std::string ours, theirs;
  std::int64_t first_row = 0, rows = 0;
  bool transposed = false;   // theirs is [inputs, outputs] (GPT-2's Conv1D)
  std::int64_t expert = -1;  // theirs is of this expert; -1: of none
  bool operator==(const WeightName&) const = default;
};

/// What theirs holds of a box of our parameter.
struct WeightPart {
  Box ours, theirs;
};
/// nullopt: nothing of it.
std::optional<WeightPart> part_of_weight(const WeightName& name, const Box& box);
/// The shape of theirs; `ours`: the full shape of our parameter.
Shape their_shape(const WeightName& name, const Shape& ours);

/// All weights of a model, layer by layer, named as in the files that transformers writes. ConfigError for a registered
/// family: other formats have no names for its parameters.
std::vector<WeightName> weight_names(const ModelConfig& model);

}  // namespace trireme
