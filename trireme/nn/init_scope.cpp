#include "trireme/nn/init_scope.hpp"

namespace trireme {
namespace {

/// Of a thread: a rank may be one.
thread_local at::TensorOptions current = at::TensorOptions().device(at::kCPU).dtype(at::kFloat);

void give_storage(at::Tensor tensor, at::Device device) {
  if (!tensor.defined()) return;
  const at::Tensor fresh = at::empty(tensor.sizes(), tensor.options().device(device).requires_grad(false));
  // What set_data does, without its check: it takes a tensor on `meta` for one of another kind. The layers' handles,
  // and that it requires grad, stay as they are.
  tensor.unsafeGetTensorImpl()->shallow_copy_from(fresh.getIntrusivePtr());
}

}  // namespace

InitScope::InitScope(at::Device device, at::ScalarType dtype) : outer_(current) {
  current = at::TensorOptions().device(device).dtype(dtype);
}
InitScope::~InitScope() { current = outer_; }

at::TensorOptions current_init_options() { return current; }

void to_empty(torch::nn::Module& root, at::Device device) {
  for (const auto& parameter : root.named_parameters(/*recurse=*/false)) give_storage(parameter.value(), device);
  for (const auto& buffer : root.named_buffers(/*recurse=*/false)) give_storage(buffer.value(), device);
  for (const auto& child : root.named_children()) to_empty(*child.value(), device);
}

}  // namespace trireme
