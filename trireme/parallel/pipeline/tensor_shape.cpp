#include "trireme/parallel/pipeline/tensor_shape.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kMaxShapeNumbers = 1 << 16;

}  // namespace

std::vector<TensorShape> shapes_of(const Tensors& tensors) {
  std::vector<TensorShape> shapes;
  for (const at::Tensor& x : tensors) shapes.push_back({x.scalar_type(), x.requires_grad(), x.sizes().vec()});
  return shapes;
}

std::vector<Pending> send_shapes(const std::vector<TensorShape>& shapes, Group& group, int to, at::Device device) {
  std::vector<std::int64_t> numbers;
  for (const TensorShape& shape : shapes) {
    numbers.push_back(static_cast<std::int64_t>(shape.dtype));
    numbers.push_back(shape.requires_grad);
    numbers.push_back(static_cast<std::int64_t>(shape.sizes.size()));
    numbers.insert(numbers.end(), shape.sizes.begin(), shape.sizes.end());
  }
  std::vector<Pending> sent;
  const auto send = [&](const std::vector<std::int64_t>& values) {
    sent.push_back(group.send(at::tensor(values, at::kLong).to(device), to));
  };
  send({static_cast<std::int64_t>(numbers.size())});
  if (!numbers.empty()) send(numbers);
  return sent;
}

std::vector<TensorShape> receive_shapes(Group& group, int from, at::Device device, const std::string& what) {
  const auto receive = [&](std::int64_t count) {
    const at::Tensor x = at::empty({count}, at::TensorOptions(at::kLong).device(device));
    return group.recv_(x, from).wait().cpu();
  };
  const std::int64_t count = receive(1).item<std::int64_t>();
  require(count >= 0 && count <= kMaxShapeNumbers, what, ": ", count, " numbers of shapes");
  std::vector<TensorShape> shapes;
  if (count == 0) return shapes;
  const at::Tensor numbers = receive(count);
  const auto* next = numbers.const_data_ptr<std::int64_t>();
  const auto* const end = next + count;
  while (next < end) {
    require(end - next >= 3 && next[2] >= 0 && next[2] <= end - next - 3, what, ": shapes that make no sense");
    shapes.push_back({static_cast<at::ScalarType>(next[0]), next[1] != 0, {next + 3, next + 3 + next[2]}});
    next += 3 + next[2];
  }
  return shapes;
}

}  // namespace trireme
