#pragma once
// parallel_matmul() with 8-bit operands.
#include <memory>

#include "trireme/kernels/matmul/fp8.hpp"
#include "trireme/nn/fp8_history.hpp"
#include "trireme/nn/fp8_recipe.hpp"
#include "trireme/parallel/tensor/parallel_matmul.hpp"

namespace trireme {

/// How the tensors of a layer are rounded.
class Fp8Layer {
 public:
  explicit Fp8Layer(const Fp8Recipe& recipe);
  // `records`: the history sees the tensor. Validation does not, and of two forwards with recomputation only one.
  kernels::Fp8Options x(bool records) const { return options(x_, records); }
  kernels::Fp8Options weight(bool records) const { return options(weight_, records); }
  kernels::Fp8Options dy() const { return options(dy_, true); }

 private:
  kernels::Fp8Options options(int tensor, bool records) const;
  kernels::Fp8Scaling scaling_;
  std::shared_ptr<Fp8History> history_;
  int x_ = 0, weight_ = 0, dy_ = 0;  // in the history
};

/// As parallel_matmul(): x and the weight are rounded to e4m3, the gradient of the output to e5m2; results have the
/// dtype of x. What is stored of x for backward is its rounded form, if it need not be gathered or recomputed.
/// ConfigError for sizes that are no multiples of 16.
at::Tensor fp8_matmul(const at::Tensor& x, const at::Tensor& weight_NK, const at::Tensor& bias_N, Input input,
                      Group& tp, const Fp8Layer& layer, const MaybeRebuild& rebuild = {});

}  // namespace trireme
