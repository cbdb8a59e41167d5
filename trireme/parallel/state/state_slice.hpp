#pragma once
// A box of a full tensor, and the memory of this rank that holds it: what checkpoints save and load.
#include <string>

#include <ATen/core/Tensor.h>

#include "trireme/layout/slices.hpp"

namespace trireme {

struct StateSlice {
  std::string name;   // of the parameter
  std::string kind;   // "weight", or a state of the optimizer: "exp_avg"
  Shape shape;        // of the full tensor
  Box box;            // in its coordinates, without padding
  at::Tensor values;  // a view of the box's shape
};

/// A tensor of which this rank holds all.
inline StateSlice whole_slice(const std::string& name, const std::string& kind, const at::Tensor& values) {
  StateSlice out{.name = name, .kind = kind, .shape = values.sizes().vec(), .box = {}, .values = values};
  for (const std::int64_t size : out.shape) out.box.push_back({0, size});
  return out;
}

}  // namespace trireme
