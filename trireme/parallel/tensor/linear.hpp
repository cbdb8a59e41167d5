#pragma once
// Tensor-parallel linear layers: the weight is sharded over tp by rows (outputs) or by columns (inputs).
#include <optional>

#include "trireme/nn/layer.hpp"
#include "trireme/parallel/tensor/fp8_matmul.hpp"
#include "trireme/parallel/tensor/parallel_matmul.hpp"

namespace trireme {

struct ColumnOptions {
  bool bias = false;
  /// y is all-gathered to full on every rank, instead of sharded by features.
  bool gather_output = false;
  /// The sections of the outputs, each sharded separately: fused QKV, gate and up (placement.hpp). Empty: one section.
  std::vector<Section> sections = {};
  /// The outputs are a vocabulary: of any size, with padding rows on every rank (Note [Vocabulary rows]).
  bool padded = false;
  Fill fill = Fill::weight;
};

// T tokens, t = T / tp; D inputs, F outputs, f = F / tp
/// y = x W^T + b with the rows of W sharded over tp.
///   forward    y_Tf  = x_TD @ W_fD^T + b_f       sequence parallelism: x_TD = all_gather(x_tD)
///   backward   dx_TD = sum_r dy_Tf @ W_fD        all_reduce, or reduce_scatter to dx_tD
///              dW_fD = dy_Tf^T @ x_TD            local
class ColumnLinear : public Layer {
 public:
  ColumnLinear(std::int64_t in, std::int64_t out, Parallel parallel, ColumnOptions options = {});
  at::Tensor forward(const at::Tensor& x, const MaybeRebuild& rebuild = {});

  at::Tensor weight_fD, bias_f;

 private:
  const Parallel parallel_;
  const bool gather_output_;
  std::optional<Fp8Layer> fp8_;
};

struct RowOptions {
  bool bias = false;
  /// x is sharded by features, as a ColumnLinear returns it; else x is full and each rank takes its slice.
  bool input_is_parallel = true;
  Fill fill = Fill::weight;
};

// T tokens, t = T / tp; F inputs, f = F / tp; D outputs
/// y = x W^T + b with the columns of W sharded over tp.
///   forward    y_TD  = sum_r x_Tf @ W_Df^T + b_D   all_reduce, or reduce_scatter to y_tD; then the bias is added once
///   backward   dx_Tf = dy_TD @ W_Df                sequence parallelism: dy_TD = all_gather(dy_tD)
///              dW_Df = dy_TD^T @ x_Tf              local
///              db_D  = sum_T dy_TD                 sequence parallelism: partial on each rank (ParamSpec::partial)
class RowLinear : public Layer {
 public:
  RowLinear(std::int64_t in, std::int64_t out, Parallel parallel, RowOptions options = {});
  /// `residual`: added to the result, if defined.
  at::Tensor forward(const at::Tensor& x, const MaybeRebuild& rebuild = {}, const at::Tensor& residual = {});

  // With nothing to add up over tp, bias and residual are parts of the product. Else undefined:
  at::Tensor bias_of_product() const { return parallel_.tp.size() == 1 ? bias_D : at::Tensor(); }
  at::Tensor residual_of_product(const at::Tensor& residual) const {
    return parallel_.tp.size() == 1 && !fp8_ ? residual : at::Tensor();
  }
  /// y from this rank's part of it, the product.
  at::Tensor finish(const at::Tensor& part_TD, const at::Tensor& residual);

  at::Tensor weight_Df, bias_D;

 private:
  const Parallel parallel_;
  const bool input_is_parallel_;
  std::optional<Fp8Layer> fp8_;
};

}  // namespace trireme
