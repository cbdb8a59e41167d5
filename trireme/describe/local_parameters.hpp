#pragma once
// The parameters that one rank holds, by shape: what the predictions of memory count.
#include <cstdint>
#include <vector>

#include "trireme/config/schema/config.hpp"

namespace trireme::config {

/// The number of elements of each tensor of a unit on one rank. A unit is what ZeRO-3 gathers and frees together.
using UnitTensors = std::vector<std::int64_t>;
std::int64_t elements(const UnitTensors& unit);

/// The parameters of one tp rank, before ZeRO: matrices and the vocabulary are sharded, norms and output biases
/// replicated.
struct LocalParameters {
  UnitTensors embedding;  // including learned positions
  UnitTensors layer;      // one layer, without its experts: all are equal
  UnitTensors experts;    // of one layer
  UnitTensors head;       // last norm, and the head's weight unless it is tied
  std::int64_t layers = 0;
  std::int64_t head_weight = 0;  // the LM head matrix, tied or not: v h, v = ceil(V / tp)

  std::int64_t expert_total() const { return layers * elements(experts); }
  std::int64_t total() const {
    return elements(embedding) + layers * elements(layer) + elements(head) + expert_total();
  }
};
/// Expects derived values (derive.hpp) and degrees that divide the heads, the MLP width and the experts.
/// `expert_tp` = 0: tp.
LocalParameters local_parameters(const ModelConfig& model, std::int64_t tp, std::int64_t ep = 1,
                                 std::int64_t expert_tp = 0);

}  // namespace trireme::config
