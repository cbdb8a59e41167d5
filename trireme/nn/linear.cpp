#include "trireme/nn/linear.hpp"

#include "trireme/base/error.hpp"
#include "trireme/comm/differentiable.hpp"
#include "trireme/nn/planted_fault.hpp"

namespace trireme {

ColumnLinear::ColumnLinear(std::int64_t in, std::int64_t out, Parallel parallel, ColumnOptions options)
    : parallel_(parallel), gather_output_(options.gather_output) {
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
  const at::Tensor y_Tf = parallel_matmul(x, weight_fD, bias_f, input_between(parallel_), parallel_.tp, rebuild);
  return gather_output_ ? differentiable::gather_replicated(y_Tf, 1, parallel_.tp) : y_Tf;
}

RowLinear::RowLinear(std::int64_t in, std::int64_t out, Parallel parallel, RowOptions options)
    : parallel_(parallel), input_is_parallel_(options.input_is_parallel) {
  const Placement columns{.cuts = {{Axis::tp, 1}}};
  weight_Df = declare("weight", {.shape = {out, in}, .placement = columns, .fill = options.fill}, parallel);
  if (options.bias)
    bias_D = declare("bias", {.shape = {out}, .partial = parallel.partial_between(), .fill = Fill::bias, .fan_in = in},
                     parallel);
}

at::Tensor RowLinear::forward(const at::Tensor& x, const MaybeRebuild& rebuild) {
  const at::Tensor x_Tf = input_is_parallel_ ? x : differentiable::split_replicated(x, 1, parallel_.tp).contiguous();
  // The bias is added once: with the product if there is nothing to add up.
  const bool alone = parallel_.tp.size() == 1;
  const at::Tensor part = with_planted_loss(
      parallel_matmul(x_Tf, weight_Df, alone ? bias_D : at::Tensor(), Input::feature_shard, parallel_.tp, rebuild),
      path(), parallel_.tp);
  const at::Tensor y = parallel_.add_up(part);
  return bias_D.defined() && !alone ? y + bias_D : y;
}

}  // namespace trireme
