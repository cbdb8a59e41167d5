#pragma once
// Linear layers whose weight is cut over tp: by its rows (outputs) or by its columns (inputs).
#include "trireme/nn/layer.hpp"
#include "trireme/nn/parallel_matmul.hpp"

namespace trireme {

struct ColumnOptions {
  bool bias = false;
  /// y leaves whole on every rank, instead of cut by features.
  bool gather_output = false;
  /// What the outputs consist of, each part cut on its own: fused QKV, gate and up (placement.hpp). Empty: one part.
  std::vector<Section> sections = {};
  /// Outputs need not be divisible: the last ranks have rows that mean nothing (vocabulary).
  bool padded = false;
  Fill fill = Fill::weight;
};

// T tokens, t = T / tp; D inputs, F outputs, f = F / tp
/// y = x W^T + b with the rows of W cut over tp.
///   forward    y_Tf  = x_TD @ W_fD^T + b_f       sequence parallel: x_TD = all_gather(x_tD)
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
};

struct RowOptions {
  bool bias = false;
  /// x arrives cut by features, as a ColumnLinear leaves it; else it arrives whole and each rank takes its part.
  bool input_is_parallel = true;
  Fill fill = Fill::weight;
};

// T tokens, t = T / tp; F inputs, f = F / tp; D outputs
/// y = x W^T + b with the columns of W cut over tp.
///   forward    y_TD  = sum_r x_Tf @ W_Df^T + b_D   all_reduce, or reduce_scatter to y_tD; then the bias, once
///   backward   dx_Tf = dy_TD @ W_Df                sequence parallel: dy_TD = all_gather(dy_tD)
///              dW_Df = dy_TD^T @ x_Tf              local
///              db_D  = sum_T dy_TD                 sequence parallel: a part on each rank (ParamSpec::partial)
class RowLinear : public Layer {
 public:
  RowLinear(std::int64_t in, std::int64_t out, Parallel parallel, RowOptions options = {});
  at::Tensor forward(const at::Tensor& x, const MaybeRebuild& rebuild = {});

  at::Tensor weight_Df, bias_D;

 private:
  const Parallel parallel_;
  const bool input_is_parallel_;
};

}  // namespace trireme
