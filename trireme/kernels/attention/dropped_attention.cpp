#include "trireme/kernels/attention/dropped_attention.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <ATen/ops/arange.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/attention/dropped_rows.hpp"
#include "trireme/kernels/rows/dtype.hpp"
#include "trireme/kernels/rows/first_order.hpp"

// b samples, h heads, g KV heads, s tokens, d head dim; P = b h pairs of sample and head; r queries of a tile
namespace trireme::kernels {
namespace {

using detail::DroppedTile;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// [b, heads, s, d] as [P, s, d], KV heads repeated.
at::Tensor by_pair(const at::Tensor& x, std::int64_t h) {
  return (x.size(1) == h ? x : x.repeat_interleave(h / x.size(1), 1)).reshape({-1, x.size(2), x.size(3)});
}

/// a b of at least f32, whatever the dtype of the operands.
at::Tensor wide_product(const at::Tensor& a, const at::Tensor& b) {
  if (!is_reduced(a.scalar_type())) return at::bmm(a, b);
  return a.is_cuda() ? at::bmm(a, b, at::kFloat) : at::bmm(a.to(at::kFloat), b.to(at::kFloat));
}

/// f(first pair, pairs, first query, queries): tiles of limited size.
void for_each_tile(std::int64_t pairs, std::int64_t s, std::int64_t elements,
                   const std::function<void(std::int64_t, std::int64_t, std::int64_t, std::int64_t)>& f) {
  const std::int64_t rows = std::min(s, std::max<std::int64_t>(16, elements / s));
  const std::int64_t together = std::max<std::int64_t>(1, elements / (s * rows));
  for (std::int64_t p = 0; p < pairs; p += together)
    for (std::int64_t q = 0; q < s; q += rows) f(p, std::min(together, pairs - p), q, std::min(rows, s - q));
}

struct DropState final : torch::CustomClassHolder {
  explicit DropState(AttentionDropout it) : dropout(std::move(it)) {}
  const AttentionDropout dropout;
};

DroppedTile tile_of(const AttentionDropout& dropout, const at::Tensor& sees, std::int64_t b, std::int64_t h,
                    std::int64_t s, double scale, std::int64_t p, std::int64_t pairs, std::int64_t q,
                    std::int64_t queries) {
  DroppedTile tile{.dropout = dropout, .scale = scale, .first_query = q, .rows_Pr = {}, .sees_Prs = {}};
  tile.rows_Pr = dropout.rows_bhs.reshape({b * h, s}).narrow(0, p, pairs).narrow(1, q, queries).contiguous();
  if (!sees.defined()) return tile;
  if (sees.dim() == 2) {
    tile.sees_Prs = sees.narrow(0, q, queries).unsqueeze(0).expand({pairs, queries, s});
    return tile;
  }
  const at::Tensor samples_P = at::arange(p, p + pairs, sees.options().dtype(at::kLong)).div_(h, "floor");
  tile.sees_Prs = sees.select(1, 0).narrow(1, q, queries).index_select(0, samples_P);
  return tile;
}

struct DroppedAttention : torch::autograd::Function<DroppedAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::optional<at::Tensor>& sees, const AttentionDropout& dropout) {
    const std::int64_t b = q.size(0), h = q.size(1), s = q.size(2), d = q.size(3);
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    const at::Tensor q_Psd = by_pair(q, h), k_Psd = by_pair(k, h), v_Psd = by_pair(v, h);
    const at::Tensor out_Psd = at::empty_like(q_Psd);
    const at::Tensor lse_Ps =
        at::empty({b * h, s}, q.options().dtype(wide_dtype(q.scalar_type())).requires_grad(false));
    for_each_tile(b * h, s, dropout.tile_elements,
                  [&](std::int64_t p, std::int64_t pairs, std::int64_t first, std::int64_t queries) {
                    const DroppedTile tile =
                        tile_of(dropout, sees.value_or(at::Tensor()), b, h, s, scale, p, pairs, first, queries);
                    const at::Tensor scores = wide_product(q_Psd.narrow(0, p, pairs).narrow(1, first, queries),
                                                           k_Psd.narrow(0, p, pairs).transpose(1, 2));
                    const at::Tensor lse = lse_Ps.narrow(0, p, pairs).narrow(1, first, queries);
                    const at::Tensor probs = detail::dropped_probabilities(scores, tile, q.scalar_type(), lse);
                    out_Psd.narrow(0, p, pairs)
                        .narrow(1, first, queries)
                        .copy_(is_reduced(v.scalar_type()) ? wide_product(probs, v_Psd.narrow(0, p, pairs))
                                                           : at::bmm(probs, v_Psd.narrow(0, p, pairs)));
                  });
    ctx->saved_data["dropout"] = c10::IValue::make_capsule(c10::make_intrusive<DropState>(dropout));
    ctx->save_for_backward({q, k, v, out_Psd, lse_Ps, sees.value_or(at::Tensor())});
    return out_Psd.view({b, h, s, d});
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    require_first_order("attention");
    const auto capsule = ctx->saved_data["dropout"].toCapsule();
    const AttentionDropout& dropout = static_cast<const DropState&>(*capsule).dropout;
    const tensor_list kept = ctx->get_saved_variables();
    const at::Tensor &q = kept[0], &k = kept[1], &v = kept[2], &out_Psd = kept[3], &lse_Ps = kept[4], &sees = kept[5];
    const std::int64_t b = q.size(0), h = q.size(1), s = q.size(2), d = q.size(3);
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    const at::ScalarType wide = wide_dtype(q.scalar_type());
    const at::Tensor q_Psd = by_pair(q, h), k_Psd = by_pair(k, h), v_Psd = by_pair(v, h);
    const at::Tensor dout_Psd = grads[0].reshape({b * h, s, d});
    const at::Tensor delta_Ps = (dout_Psd.to(wide) * out_Psd.to(wide)).sum(-1);
    const at::Tensor dq_Psd = at::empty_like(q_Psd);
    // Over tiles of queries the gradients of keys and values add up.
    at::Tensor dk_Psd = at::zeros(k_Psd.sizes(), k_Psd.options().dtype(wide)), dv_Psd = at::zeros_like(dk_Psd);
    for_each_tile(b * h, s, dropout.tile_elements,
                  [&](std::int64_t p, std::int64_t pairs, std::int64_t first, std::int64_t queries) {
                    const DroppedTile tile = tile_of(dropout, sees, b, h, s, scale, p, pairs, first, queries);
                    const auto of_queries = [&](const at::Tensor& x) {
                      return x.narrow(0, p, pairs).narrow(1, first, queries);
                    };
                    const at::Tensor queries_Prd = of_queries(q_Psd), keys_Psd = k_Psd.narrow(0, p, pairs),
                                     dout_Prd = of_queries(dout_Psd);
                    const at::Tensor scores = wide_product(queries_Prd, keys_Psd.transpose(1, 2));
                    const at::Tensor dprobs = wide_product(dout_Prd, v_Psd.narrow(0, p, pairs).transpose(1, 2));
                    const auto [probs, dscores] =
                        detail::dropped_gradients(scores, dprobs, tile, q.scalar_type(),
                                                  of_queries(lse_Ps).contiguous(), of_queries(delta_Ps).contiguous());
                    dv_Psd.narrow(0, p, pairs).add_(wide_product(probs.transpose(1, 2), dout_Prd));
                    dk_Psd.narrow(0, p, pairs).add_(wide_product(dscores.transpose(1, 2), queries_Prd));
                    of_queries(dq_Psd).copy_(wide_product(dscores, keys_Psd));
                  });
    const auto back = [&](const at::Tensor& dx_Psd, const at::Tensor& x) {
      const at::Tensor all = dx_Psd.view({b, h, s, d});
      return (x.size(1) == h ? all : all.unflatten(1, {x.size(1), h / x.size(1)}).sum(2)).to(x.scalar_type());
    };
    return {dq_Psd.view({b, h, s, d}), back(dk_Psd, k), back(dv_Psd, v), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor dropped_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& sees,
                             const AttentionDropout& dropout) {
  require(q.dim() == 4 && k.sizes() == v.sizes() && k.dim() == 4 && q.size(1) % k.size(1) == 0,
          "dropped_attention: q of sizes ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes(),
          ": must be [b, heads, s, d], KV heads dividing the heads");
  require(dropout.rows_bhs.sizes() == q.sizes().slice(0, 3), "dropped_attention: rows of sizes ",
          dropout.rows_bhs.sizes(), " for queries of ", q.sizes());
  return DroppedAttention::apply(q, k, v, sees.defined() ? std::optional(sees) : std::nullopt, dropout);
}

namespace detail {
namespace {

/// exp of the scaled scores minus `lse`, 0 where a query does not attend.
at::Tensor masked_scores(const at::Tensor& scores_Prs, const DroppedTile& tile) {
  const at::Tensor scaled = scores_Prs * tile.scale;
  const double none = -std::numeric_limits<double>::infinity();
  if (tile.sees_Prs.defined()) return scaled.masked_fill_(tile.sees_Prs.logical_not(), none);
  const auto options = scores_Prs.options().dtype(at::kLong).requires_grad(false);
  const at::Tensor query_r1 = at::arange(tile.first_query, tile.first_query + scores_Prs.size(1), options).unsqueeze(1);
  return scaled.masked_fill_(at::arange(scores_Prs.size(2), options).unsqueeze(0).gt(query_r1), none);
}

at::Tensor kept_Prs(const at::Tensor& scores_Prs, const DroppedTile& tile) {
  return keep_mask(tile.dropout.p, tile.dropout.key,
                   {.rows = tile.rows_Pr.flatten(), .row_width = tile.dropout.row_width}, scores_Prs.size(2))
      .view(scores_Prs.sizes());
}

}  // namespace

at::Tensor dropped_probabilities(const at::Tensor& scores_Prs, const DroppedTile& tile, at::ScalarType dtype,
                                 const at::Tensor& lse_Pr) {
  if (has_dropped_rows_on_cuda(scores_Prs, tile)) return dropped_probabilities_on_cuda(scores_Prs, tile, dtype, lse_Pr);
  const at::Tensor masked = masked_scores(scores_Prs, tile);
  lse_Pr.copy_(masked.logsumexp(-1));
  const at::Tensor p = (masked - lse_Pr.unsqueeze(-1)).exp_();
  return (p * kept_Prs(scores_Prs, tile) / (1 - tile.dropout.p)).to(dtype);
}

DroppedGradients dropped_gradients(const at::Tensor& scores_Prs, const at::Tensor& dprobs_Prs, const DroppedTile& tile,
                                   at::ScalarType dtype, const at::Tensor& lse_Pr, const at::Tensor& delta_Pr) {
  if (has_dropped_rows_on_cuda(scores_Prs, tile))
    return dropped_gradients_on_cuda(scores_Prs, dprobs_Prs, tile, dtype, lse_Pr, delta_Pr);
  const at::Tensor p = (masked_scores(scores_Prs, tile) - lse_Pr.unsqueeze(-1)).exp_();
  const at::Tensor factor = kept_Prs(scores_Prs, tile).to(p.scalar_type()) / (1 - tile.dropout.p);
  const at::Tensor dscores = p * (dprobs_Prs * factor - delta_Pr.unsqueeze(-1)) * tile.scale;
  return {(p * factor).to(dtype), dscores.to(dtype)};
}

}  // namespace detail
}  // namespace trireme::kernels
