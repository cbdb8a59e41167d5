#pragma once
// The device and dtype of new layers' parameters; deferred initialization on `meta`.
#include <torch/nn/module.h>

namespace trireme {

/// During its lifetime, layers created by this thread use this device and dtype: `const InitScope scope(at::kCUDA,
/// at::kBFloat16)`. On at::kMeta nothing is allocated: shapes only, until to_empty. Scopes nest.
class [[nodiscard]] InitScope {
 public:
  InitScope(at::Device device, at::ScalarType dtype);
  ~InitScope();
  InitScope(const InitScope&) = delete;
  InitScope& operator=(const InitScope&) = delete;

 private:
  at::TensorOptions outer_;
};

/// The options of the innermost scope; CPU and f32 without one.
at::TensorOptions current_init_options();

/// Every handle of `tensor` refers to the memory, device and shape of `values` from now on. As set_data, but also for a
/// tensor on `meta`. The version counter and requires_grad are unchanged.
void set_memory(const at::Tensor& tensor, const at::Tensor& values);

/// Gives every parameter and buffer below `root` new, uninitialized storage on `device`, for modules created on `meta`.
/// Old values are lost.
void to_empty(torch::nn::Module& root, at::Device device);

}  // namespace trireme
