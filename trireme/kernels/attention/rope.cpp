#include "trireme/kernels/attention/rope.hpp"

#include <algorithm>

#include <ATen/ops/empty_like.h>

#include "trireme/kernels/rows/on_cuda.hpp"
#include "trireme/kernels/rows/rows.hpp"

// T tokens, H heads, E = head dim, h = E / 2
namespace trireme::kernels {
namespace {

using namespace detail;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

enum class Turn { forward, back };

template <class S, class W = Wide<S>>
[[gnu::flatten]] void turn_head(const S* x, const W* cos, const W* sin, W sign, S* y, std::int64_t h) {
  for_lanes<W>(h, [&](std::int64_t i, auto n) {
    const Lanes<W> a = load(x + i, n), b = load(x + h + i, n), c = load(cos + i, n), s = load(sin + i, n) * sign;
    store(y + i, a * c - b * s, n);
    store(y + h + i, b * c + a * s, n);
  });
}

at::Tensor turned(const at::Tensor& x_THE, const at::Tensor& cos_Th, const at::Tensor& sin_Th, std::int64_t rotated,
                  Turn turn) {
  const std::int64_t T = x_THE.size(0), H = x_THE.size(1), E = x_THE.size(2), h = E / 2;
  if (has_rope_on_cuda(x_THE)) return rope_on_cuda(x_THE, cos_Th, sin_Th, rotated, turn == Turn::back);
  const at::Tensor y_THE = at::empty_like(x_THE);
  if (!x_THE.is_cpu()) {
    const at::Tensor a = x_THE.narrow(1, 0, rotated).narrow(2, 0, h), b = x_THE.narrow(1, 0, rotated).narrow(2, h, h);
    const at::Tensor c = cos_Th.unsqueeze(1), s = turn == Turn::forward ? sin_Th.unsqueeze(1) : -sin_Th.unsqueeze(1);
    const at::Tensor to = y_THE.narrow(1, 0, rotated);
    to.narrow(2, 0, h).copy_(a * c - b * s);  // c is f32 or f64, so both products are
    to.narrow(2, h, h).copy_(b * c + a * s);
    y_THE.narrow(1, rotated, H - rotated).copy_(x_THE.narrow(1, rotated, H - rotated));
    return y_THE;
  }
  by_dtype("rope", x_THE.scalar_type(), [&]<class S>(S) {
    using W = Wide<S>;
    const S* const x = x_THE.const_data_ptr<S>();
    const W *const cos = cos_Th.const_data_ptr<W>(), *const sin = sin_Th.const_data_ptr<W>();
    const W sign = turn == Turn::forward ? 1 : -1;
    S* const y = y_THE.mutable_data_ptr<S>();
    over_rows(T, H * E, [=](std::int64_t first, std::int64_t last) {
      for (std::int64_t t = first; t < last; ++t) {
        const std::int64_t row = t * H * E;
        for (std::int64_t head = 0; head < rotated; ++head)
          turn_head(x + row + head * E, cos + t * h, sin + t * h, sign, y + row + head * E, h);
        std::copy(x + row + rotated * E, x + row + H * E, y + row + rotated * E);
      }
    });
  });
  return y_THE;
}

struct Rope : torch::autograd::Function<Rope> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_THE, const at::Tensor& cos_Th,
                            const at::Tensor& sin_Th, std::int64_t rotated) {
    ctx->save_for_backward({cos_Th, sin_Th});
    ctx->saved_data["rotated"] = rotated;
    return turned(x_THE, cos_Th, sin_Th, rotated, Turn::forward);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list dy) {
    require_first_order("rope");
    const auto kept = ctx->get_saved_variables();
    const std::int64_t rotated = ctx->saved_data["rotated"].toInt();
    return {turned(dy[0].contiguous(), kept[0], kept[1], rotated, Turn::back), at::Tensor(), at::Tensor(),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor rope(const at::Tensor& x_THE, const at::Tensor& cos_Th, const at::Tensor& sin_Th,
                std::int64_t rotated_heads) {
  require_dtype("rope", x_THE);
  require(x_THE.dim() == 3 && x_THE.size(2) % 2 == 0, "rope: x of sizes ", x_THE.sizes(),
          ": must be [T, heads, d] with an even d");
  require(rotated_heads >= 0 && rotated_heads <= x_THE.size(1), "rope: rotated_heads = ", rotated_heads,
          " of x of sizes ", x_THE.sizes(), ": must be from 0 to ", x_THE.size(1));
  require_contiguous("rope", "x", x_THE);
  const at::ScalarType wide = wide_dtype(x_THE.scalar_type());
  require_like("rope", "cos", cos_Th, {x_THE.size(0), x_THE.size(2) / 2}, wide, x_THE.device());
  require_like("rope", "sin", sin_Th, {x_THE.size(0), x_THE.size(2) / 2}, wide, x_THE.device());
  require(!cos_Th.requires_grad() && !sin_Th.requires_grad(), "rope: cos and sin get no gradient, but require one");
  if (wants_grad(x_THE)) return Rope::apply(x_THE, cos_Th, sin_Th, rotated_heads);
  return turned(x_THE, cos_Th, sin_Th, rotated_heads, Turn::forward);
}

}  // namespace trireme::kernels
