#include "trireme/parallel/tensor/linear.hpp"

#include "trireme/base/error.hpp"
#include "trireme/comm/differentiable.hpp"

namespace trireme {

ColumnLinear::ColumnLinear(std::int64_t in, std::int64_t out, Parallel parallel, ColumnOptions options)
    : parallel_(parallel), gather_output_(options.gather_output) {
  if (parallel.fp8 && !options.padded) fp8_.emplace(*parallel.fp8);
  require(
      !options.gather_output || (options.sections.empty() && !options.padded),
      "ColumnLinear: gather_output puts the ranks' outputs side by side, which is not the whole where they consist of "
      "sections or are padded");
  Cut cut = options.padded ? vocabulary_rows(Axis::tp, 0) : Cut{Axis::tp, 0};
  cut.sections = options.sections;
  const Placement rows{.cuts = {cut}};
  weight_fD = declare("weight", {.shape = {out, in}, .placement = rows, .fill = options.fill}, parallel);
  if (options.bias)
    bias_f = declare("bias", {.shape = {out}, .placement = rows, .fill = Fill::bias, .fan_in = in}, parallel);
}

at::Tensor ColumnLinear::forward(const at::Tensor& x, const MaybeRebuild& rebuild) {
  const Input input = input_between(parallel_);
  const at::Tensor y_Tf = fp8_ ? fp8_matmul(x, weight_fD, bias_f, input, parallel_.tp, *fp8_, rebuild)
                               : parallel_matmul(x, weight_fD, bias_f, input, parallel_.tp, rebuild);
  return gather_output_ ? differentiable::gather_replicated(y_Tf, 1, parallel_.tp) : y_Tf;
}

RowLinear::RowLinear(std::int64_t in, std::int64_t out, Parallel parallel, RowOptions options)
    : parallel_(parallel), input_is_parallel_(options.input_is_parallel) {
  if (parallel.fp8) fp8_.emplace(*parallel.fp8);
  const Placement columns{.cuts = {{Axis::tp, 1}}};
  weight_Df = declare("weight", {.shape = {out, in}, .placement = columns, .fill = options.fill}, parallel);
  if (options.bias)
    bias_D = declare("bias", {.shape = {out}, .partial = parallel.partial_between(), .fill = Fill::bias, .fan_in = in},
                     parallel);
}

at::Tensor RowLinear::forward(const at::Tensor& x, const MaybeRebuild& rebuild, const at::Tensor& residual) {
  const at::Tensor x_Tf = input_is_parallel_ ? x : differentiable::split_replicated(x, 1, parallel_.tp).contiguous();
  if (fp8_)
    return finish(fp8_matmul(x_Tf, weight_Df, bias_of_product(), Input::feature_shard, parallel_.tp, *fp8_, rebuild),
                  residual);
  return finish(parallel_matmul(x_Tf, weight_Df, bias_of_product(), Input::feature_shard, parallel_.tp, rebuild,
                                residual_of_product(residual)),
                residual);
}

at::Tensor RowLinear::finish(const at::Tensor& part_TD, const at::Tensor& residual) {
  at::Tensor y = parallel_.add_up(part_TD);
  if (bias_D.defined() && !bias_of_product().defined()) y = y + bias_D;
  return residual.defined() && !residual_of_product(residual).defined() ? residual + y : y;
}

}  // namespace trireme
