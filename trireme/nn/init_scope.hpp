#pragma once
// Where and in which dtype new layers put their parameters; `meta`, and storage afterwards.
#include <torch/nn/module.h>

namespace trireme {

/// While it lives, layers made by this thread have their parameters there: `const InitScope scope(at::kCUDA,
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

/// What the scope says; the CPU and f32 without one.
at::TensorOptions current_init_options();

/// Gives every parameter and buffer below `root` new, uninitialised storage on `device`, which is all that one made on
/// `meta` lacks. Values that were there are gone.
void to_empty(torch::nn::Module& root, at::Device device);

}  // namespace trireme
