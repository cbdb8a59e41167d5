#pragma once
// Faults of a layout that tests plant, to see whether `trireme verify` finds them. There is none in any other program:
// only the command `verify` plants what the variable TRIREME_TEST_FAULT asks for, and says so.
#include <string>

#include <ATen/core/Tensor.h>

#include "trireme/comm/group.hpp"

namespace trireme {

enum class Fault {
  lost_sum,        // ranks of tp other than the first contribute nothing to the output of a RowLinear or vocabulary
  lost_partial,    // the gradient of a parameter that is partial over tp is not summed
  lost_tie,        // the gradients of the two copies of a tied weight are not summed
  shifted_values,  // ranks of tp other than the first take the values of the KV head beside theirs
};

/// "lost_sum layers.1.mlp.down": from now on, in all models that are made. ConfigError for an unknown kind.
void plant_fault(const std::string& kind_and_module);

/// Whether this fault is planted in this module.
bool is_planted(Fault fault, const std::string& module);

/// `part` of a sum over tp; zero where Fault::lost_sum is planted.
at::Tensor with_planted_loss(const at::Tensor& part, const std::string& module, const Group& tp);

}  // namespace trireme
