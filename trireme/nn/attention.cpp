#include "trireme/nn/attention.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ops/cat.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/attention.hpp"
#include "trireme/kernels/dtype.hpp"
#include "trireme/kernels/rope.hpp"
#include "trireme/nn/recompute.hpp"

namespace trireme {
namespace {

std::vector<Section> qkv_sections(const AttentionOptions& o) {
  return fused_qkv(Axis::tp, 0, o.heads, o.kv_heads, o.head_dim).sections;
}

}  // namespace

Attention::Attention(const AttentionOptions& options, Parallel parallel)
    : options_(options),
      parallel_(parallel),
      own_heads_(options.heads / parallel.tp.size()),
      own_kv_heads_(std::max<std::int64_t>(1, options.kv_heads / parallel.tp.size())) {
  const std::int64_t heads = options.heads, kv = options.kv_heads, d = options.head_dim;
  require<ConfigError>(heads % kv == 0, "attention: num_attention_heads = ", heads,
                       " is not divisible by num_key_value_heads = ", kv);
  require<ConfigError>(heads % parallel.tp.size() == 0, "attention: num_attention_heads = ", heads,
                       " is not divisible by tp = ", parallel.tp.size(), "\n  fix: a tp that divides the heads");
  require<ConfigError>(kv % parallel.tp.size() == 0 || parallel.tp.size() % kv == 0,
                       "attention: num_key_value_heads = ", kv, " and tp = ", parallel.tp.size(),
                       ": neither divides the other");
  qkv_ = register_module("qkv", std::make_shared<ColumnLinear>(
                                    options.features, (heads + 2 * kv) * d, parallel,
                                    ColumnOptions{.bias = options.qkv_bias, .sections = qkv_sections(options)}));
  out_ = register_module(
      "out", std::make_shared<RowLinear>(heads * d, options.features, parallel,
                                         RowOptions{.bias = options.out_bias, .fill = Fill::residual_weight}));
  if (options.qk_norm) {
    // One weight for all heads, but each rank has different heads: its gradient is partial.
    q_norm_ = register_module("q_norm", std::make_shared<RmsNorm>(d, options.norm_eps, parallel, Axis::tp));
    k_norm_ = register_module("k_norm", std::make_shared<RmsNorm>(d, options.norm_eps, parallel, Axis::tp));
  }
  if (options.dropout > 0) dropout_ = register_module("dropout", std::make_shared<Dropout>(options.dropout));
}

at::Tensor Attention::forward(const at::Tensor& x, const Rotation* rotation, const ForwardContext& context,
                              const MaybeRebuild& rebuild, bool recompute_core) {
  const std::int64_t h = own_heads_, g = own_kv_heads_, d = options_.head_dim;
  at::Tensor heads_Tnd = qkv_->forward(x, rebuild).view({-1, h + 2 * g, d});
  require(heads_Tnd.size(0) == context.tokens(), "attention ", path(), ": ", heads_Tnd.size(0), " tokens, but ",
          context.batch, " samples of ", context.length);
  if (q_norm_)
    heads_Tnd = at::cat({q_norm_->forward(heads_Tnd.narrow(1, 0, h).contiguous()),
                         k_norm_->forward(heads_Tnd.narrow(1, h, g).contiguous()), heads_Tnd.narrow(1, h + g, g)},
                        1);
  if (rotation) heads_Tnd = kernels::rope(heads_Tnd, rotation->cos_Td, rotation->sin_Td, h + g);

  // q, k and v stay views of one tensor, so only that tensor is stored for backward.
  const at::Tensor heads_bnsd = heads_Tnd.view({context.batch, context.length, h + 2 * g, d}).transpose(1, 2);
  const at::Tensor q = heads_bnsd.narrow(1, 0, h), k = heads_bnsd.narrow(1, h, g), v = heads_bnsd.narrow(1, h + g, g);
  const bool drops = dropout_ && dropout_->active(context);
  const auto maths = [this, context, drops](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
    return drops ? dropped_core(a, b, c, context) : core(a, b, c, context);
  };
  const at::Tensor out_bhsd =
      recompute_core && drops ? recompute(maths, {.preserve_rng = false}, q, k, v) : maths(q, k, v);
  return out_->forward(out_bhsd.transpose(1, 2).reshape({context.tokens(), h * d}));
}

at::Tensor Attention::core(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const ForwardContext& context) {
  const bool windowed = options_.window > 0 && options_.window < context.length;
  return kernels::attention(q, k, v, windowed ? mask(context, q) : context.sees_b1ss);
}

/// True where a query (row) attends to a key (column): [s, s] or [b, 1, s, s].
at::Tensor Attention::mask(const ForwardContext& context, const at::Tensor& like) const {
  const auto options = like.options().dtype(at::kBool).requires_grad(false);
  at::Tensor sees = at::ones({context.length, context.length}, options).tril_();
  if (options_.window > 0) sees.triu_(1 - options_.window);
  return context.sees_b1ss.defined() ? sees.logical_and(context.sees_b1ss) : sees;
}

/// Unfused attention, so that each probability has its own dropout decision: (sample, head, query, key).
at::Tensor Attention::dropped_core(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const ForwardContext& context) {
  const std::int64_t b = context.batch, h = own_heads_, s = context.length, repeats = own_heads_ / own_kv_heads_;
  // At least f32: bf16 matmuls can be very slow on a CPU, and f16 overflows at 65,504.
  const at::ScalarType dtype = q.scalar_type(), wide = kernels::wide_dtype(dtype);
  const at::Tensor queries = q.to(wide), keys = k.to(wide).repeat_interleave(repeats, 1),
                   values = v.to(wide).repeat_interleave(repeats, 1);
  const at::Tensor scores =
      at::matmul(queries, keys.transpose(2, 3)) / std::sqrt(static_cast<double>(options_.head_dim));
  const at::Tensor p =
      at::softmax(scores.masked_fill(mask(context, q).logical_not(), -std::numeric_limits<double>::infinity()), -1);
  const auto whole = at::TensorOptions().dtype(at::kLong).device(q.device());
  const at::Tensor samples_b = context.samples_T.view({b, s}).select(1, 0);
  const at::Tensor heads_h = at::arange(parallel_.tp.rank() * h, (parallel_.tp.rank() + 1) * h, whole);
  const at::Tensor rows_bhs =
      ((samples_b.view({b, 1, 1}) * options_.heads + heads_h.view({1, h, 1})) * context.whole_length +
       context.positions_T.view({b, 1, s}));
  const at::Tensor keeps = kernels::keep_mask(dropout_->p(), dropout_->key(context),
                                              {.rows = rows_bhs.flatten(), .row_width = context.whole_length}, s)
                               .view({b, h, s, s});
  return at::matmul(p * keeps / (1 - dropout_->p()), values).to(dtype);
}

}  // namespace trireme
