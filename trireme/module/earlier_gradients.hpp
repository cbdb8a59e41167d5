#pragma once
// Accumulation over calls that each compute, and average, the gradients of one step.
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme {

/// The gradients that parameters have from earlier steps, while those of one step are computed and averaged.
class EarlierGradients {
 public:
  explicit EarlierGradients(const std::vector<at::Tensor>& parameters) {
    for (const at::Tensor& parameter : parameters) {
      kept_.emplace_back(parameter, parameter.grad());
      parameter.mutable_grad() = at::Tensor();
    }
  }
  void add_new_ones() {
    for (auto& [parameter, gradient] : kept_)
      if (!gradient.defined())
        gradient = parameter.grad();
      else if (parameter.grad().defined())
        gradient.add_(parameter.grad());
  }
  /// A step that threw adds nothing.
  ~EarlierGradients() {
    for (auto& [parameter, gradient] : kept_) parameter.mutable_grad() = gradient;
  }
  EarlierGradients(const EarlierGradients&) = delete;
  EarlierGradients& operator=(const EarlierGradients&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;
};

}  // namespace trireme
