#pragma once
// What a rank has to know of tensors before it can receive them, and how it is told.
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/group.hpp"

namespace trireme {

using Tensors = std::vector<at::Tensor>;

struct TensorShape {
  at::ScalarType dtype;
  bool requires_grad;
  std::vector<std::int64_t> sizes;
  bool operator==(const TensorShape&) const = default;
};

std::vector<TensorShape> shapes_of(const Tensors& tensors);

/// Tells rank `to` of the group the shapes of what follows. `device`: where the group's messages are.
std::vector<Pending> send_shapes(const std::vector<TensorShape>& shapes, Group& group, int to, at::Device device);
/// `what` is in the error message if these are none.
std::vector<TensorShape> receive_shapes(Group& group, int from, at::Device device, const std::string& what);

}  // namespace trireme
