#pragma once
// How linear layers multiply in 8 bits.
#include <memory>

#include "trireme/kernels/matmul/fp8.hpp"

namespace trireme {

class Fp8History;

struct Fp8Recipe {
  kernels::Fp8Scaling scaling = kernels::Fp8Scaling::tensor;
  std::shared_ptr<Fp8History> history = {};  // null: scales follow from the tensors of the step themselves
};

}  // namespace trireme
