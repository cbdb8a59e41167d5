#include "trireme/nn/param_values.hpp"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "trireme/layout/flat_boxes.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kBlock = std::int64_t{1} << 20;  // elements

}  // namespace

void for_each_block(const Param& param, Range range, const ParamValues& values,
                    const std::function<void(Range range, const at::Tensor& values)>& f) {
  for (std::int64_t begin = range.begin; begin < range.end; begin += kBlock) {
    const Range block{begin, std::min(begin + kBlock, range.end)};
    const at::Tensor out = at::empty({block.size()}, at::kDouble);
    values(param, block, out);
    f(block, out);
  }
}

void fill_params(const std::vector<Param>& params, const ParamValues& values) {
  const at::NoGradGuard no_grad;
  for (const Param& param : params) {
    const at::Tensor flat = param.value.detach().view({-1});
    for_each_block(param, {0, flat.numel()}, values,
                   [&](Range block, const at::Tensor& out) { flat.narrow(0, block.begin, block.size()).copy_(out); });
  }
}

void read_by_boxes(const Param& param, const ParamMesh& mesh, Range range, const at::Tensor& out,
                   const std::function<void(const Box& global, at::Tensor into)>& read) {
  out.zero_();  // padding
  for (const FlatBox& box : flat_boxes(mesh.pieces(param.spec), param.value.sizes().vec(), range)) {
    const at::Tensor block = out.narrow(0, box.block_begin, numel(box.block)).view(box.block);
    read(box.global, box_view(block, box.in_block));
  }
}

}  // namespace trireme
