#include "trireme/nn/param_values.hpp"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace trireme {
namespace {

constexpr std::int64_t kBlock = std::int64_t{1} << 20;  // elements

/// Consecutive rows of a tensor: a box whose elements are contiguous, the first one at index `first`.
struct Rows {
  Box box;
  std::int64_t first = 0;
};

/// The rows that contain element `begin` and, if they are in the same block, those up to `end`. A row has at most
/// kBlock elements, unless the tensor's last dim is larger.
Rows rows_from(const Shape& shape, Range range) {
  std::int64_t row = numel(shape);
  std::size_t dim = 0;
  for (;; ++dim) {
    row /= std::max<std::int64_t>(shape[dim], 1);
    if (row <= kBlock || dim + 1 == shape.size()) break;
  }
  const std::int64_t rows = shape[dim], outer = range.begin / (rows * row), start = outer * rows * row;
  const std::int64_t last = std::min(range.end, start + rows * row);
  Rows out;
  std::int64_t rest = outer;
  out.box.resize(shape.size());
  for (std::size_t d = dim; d-- > 0;) {
    out.box[d] = {rest % shape[d], rest % shape[d] + 1};
    rest /= shape[d];
  }
  out.box[dim] = {(range.begin - start) / row, (last - start + row - 1) / row};
  for (std::size_t d = dim + 1; d < shape.size(); ++d) out.box[d] = {0, shape[d]};
  out.first = start + out.box[dim].begin * row;
  return out;
}

/// The part of the piece inside `box` of the local tensor, with local coordinates relative to the box; empty boxes if
/// there is none.
std::pair<Box, Box> intersection(const Piece& piece, const Box& box) {
  Box global = box_of(piece.slices.global_slices), local = box_of(piece.slices.local_slices);
  for (std::size_t d = 0; d < local.size(); ++d) {
    const Range inside{std::max(local[d].begin, box[d].begin), std::min(local[d].end, box[d].end)};
    if (inside.begin >= inside.end) return {{}, {}};
    const std::int64_t shift = global[d].begin - local[d].begin;
    global[d] = {inside.begin + shift, inside.end + shift};
    local[d] = {inside.begin - box[d].begin, inside.end - box[d].begin};
  }
  return {global, local};
}

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
  const std::vector<Piece> pieces = mesh.pieces(param.spec);
  if (param.value.dim() == 0) {
    for ([[maybe_unused]] const Piece& piece : pieces) read({}, out.view({}));
    return;
  }
  const Shape shape = param.value.sizes().vec();
  for (std::int64_t begin = range.begin; begin < range.end;) {
    const Rows rows = rows_from(shape, {begin, range.end});
    Shape sizes;
    for (const Range& side : rows.box) sizes.push_back(side.size());
    const at::Tensor buffer = at::zeros(sizes, out.options());
    for (const Piece& piece : pieces) {
      const auto [global, local] = intersection(piece, rows.box);
      if (!global.empty()) read(global, box_view(buffer, local));
    }
    const std::int64_t end = std::min(range.end, rows.first + buffer.numel());
    out.narrow(0, begin - range.begin, end - begin).copy_(buffer.view({-1}).narrow(0, begin - rows.first, end - begin));
    begin = end;
  }
}

}  // namespace trireme
