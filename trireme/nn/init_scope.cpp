#include "trireme/nn/init_scope.hpp"

namespace trireme {
namespace {

/// Thread-local: a rank may be a thread.
thread_local at::TensorOptions current = at::TensorOptions().device(at::kCPU).dtype(at::kFloat);

void give_storage(at::Tensor tensor, at::Device device) {
  if (!tensor.defined()) return;
  set_memory(tensor, at::empty(tensor.sizes(), tensor.options().device(device).requires_grad(false)));
}

}  // namespace

InitScope::InitScope(at::Device device, at::ScalarType dtype) : outer_(current) {
  current = at::TensorOptions().device(device).dtype(dtype);
}
InitScope::~InitScope() { current = outer_; }

at::TensorOptions current_init_options() { return current; }

// set_data without its check, which rejects a tensor on `meta` as a different type.
void set_memory(const at::Tensor& tensor, const at::Tensor& values) {
  tensor.unsafeGetTensorImpl()->shallow_copy_from(values.getIntrusivePtr());
}

void to_empty(torch::nn::Module& root, at::Device device) {
  for (const auto& parameter : root.named_parameters(/*recurse=*/false)) give_storage(parameter.value(), device);
  for (const auto& buffer : root.named_buffers(/*recurse=*/false)) give_storage(buffer.value(), device);
  for (const auto& child : root.named_children()) to_empty(*child.value(), device);
}

}  // namespace trireme
