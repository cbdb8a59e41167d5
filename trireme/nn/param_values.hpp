#pragma once
// Values of parameters by range: a rank that keeps a shard of a parameter reads or draws only that shard, and host
// memory holds only a block at a time.
#include <functional>
#include <vector>

#include "trireme/nn/layer.hpp"

namespace trireme {

/// Writes elements `range` of this rank's part of the parameter, in row-major order, to `out` (1-D, CPU, f32 or f64).
/// Padding is zero.
using ParamValues = std::function<void(const Param& param, Range range, const at::Tensor& out)>;

/// Calls f(param, range, values) for consecutive blocks of `range`; `values` are in f64.
void for_each_block(const Param& param, Range range, const ParamValues& values,
                    const std::function<void(Range range, const at::Tensor& values)>& f);

/// Sets parameters that have memory, as a whole.
void fill_params(const std::vector<Param>& params, const ParamValues& values);

/// For implementations of ParamValues: calls read(global, into) for the boxes of the full parameter that `range`
/// consists of; `into`, a view of `out` of the box's shape, is to be overwritten.
void read_by_boxes(const Param& param, const ParamMesh& mesh, Range range, const at::Tensor& out,
                   const std::function<void(const Box& global, at::Tensor into)>& read);

}  // namespace trireme
