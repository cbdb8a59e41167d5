#include "trireme/model/grouped_query_attention.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ops/cat.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/attention/attention.hpp"
#include "trireme/kernels/attention/dropped_attention.hpp"
#include "trireme/kernels/attention/rope.hpp"
#include "trireme/nn/kv_cache.hpp"
#include "trireme/parallel/context/ring_attention.hpp"
#include "trireme/parallel/context/ring_plan.hpp"
#include "trireme/parallel/context/ulysses.hpp"

namespace trireme {
namespace {

std::vector<Section> qkv_sections(const AttentionOptions& o) {
  return fused_qkv(Axis::tp, 0, o.heads, o.kv_heads, o.head_dim).sections;
}

}  // namespace

GroupedQueryAttention::GroupedQueryAttention(const AttentionOptions& options, Parallel parallel)
    : options_(options),
      parallel_(parallel),
      own_heads_(options.heads / parallel.tp.size()),
      own_kv_heads_(std::max<std::int64_t>(1, options.kv_heads / parallel.tp.size())) {
  const std::int64_t heads = options.heads, kv = options.kv_heads, d = options.head_dim;
  require<ConfigError>(heads > 0 && kv > 0, "attention: num_attention_heads = ", heads, ", num_key_value_heads = ", kv,
                       ": both must be at least 1");
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
  require<ConfigError>(options.dropout == 0 || options.softcap == 0, "attention: dropout = ", options.dropout,
                       " with softcap = ", options.softcap, ": probabilities of capped scores cannot be dropped",
                       "\n  fix: attention_dropout = 0");
  if (options.dropout > 0) dropout_ = register_module("dropout", std::make_shared<Dropout>(options.dropout));
}

at::Tensor GroupedQueryAttention::forward(const at::Tensor& x, const AttentionFacts& facts,
                                          const ForwardContext& context, const MaybeRebuild& rebuild) {
  const std::int64_t h = own_heads_, g = own_kv_heads_, d = options_.head_dim;
  at::Tensor heads_Tnd = qkv_->forward(x, rebuild).view({-1, h + 2 * g, d});
  require(heads_Tnd.size(0) == context.tokens(), "attention ", path(), ": ", heads_Tnd.size(0), " tokens, but ",
          context.batch, " samples of ", context.length);
  if (q_norm_)
    heads_Tnd = at::cat({q_norm_->forward(heads_Tnd.narrow(1, 0, h).contiguous()),
                         k_norm_->forward(heads_Tnd.narrow(1, h, g).contiguous()), heads_Tnd.narrow(1, h + g, g)},
                        1);
  if (facts.rotation) heads_Tnd = kernels::rope(heads_Tnd, facts.rotation->cos_Td, facts.rotation->sin_Td, h + g);
  if (options_.score_size > 0 && options_.score_size != static_cast<double>(d))
    heads_Tnd = at::cat({heads_Tnd.narrow(1, 0, h) * std::sqrt(static_cast<double>(d) / options_.score_size),
                         heads_Tnd.narrow(1, h, 2 * g)},
                        1);

  // q, k and v stay views of one tensor, so only that tensor is stored for backward.
  const at::Tensor heads_bsnd = exchange_tokens_for_heads(heads_Tnd.view({context.batch, context.length, h + 2 * g, d}),
                                                          {h, g}, parallel_.ulysses);
  const auto [queries, keys] = heads_per_rank({h, g}, parallel_.ulysses.size());
  const bool drops = dropout_ && dropout_->active(context);
  if (drops && parallel_.cp.size() == 1 && !facts.sees.defined() && !context.samples_b.empty() &&
      kernels::has_flash_attention(heads_bsnd.device(), heads_bsnd.scalar_type(), d)) {
    const kernels::DropoutKey key = dropout_->key(context);
    return output(kernels::flash_attention_with_dropout(heads_bsnd, h,
                                                        {.p = dropout_->p(),
                                                         .seed = key.purpose + 0x9E3779B97F4A7C15U * key.seed,
                                                         .samples = context.samples_b,
                                                         .heads = options_.heads,
                                                         .first_head = parallel_.tp.rank() * h}),
                  context);
  }
  if (!drops && parallel_.ring.size() == 1 && !context.cache)
    return output(facts.flash ? kernels::flash_attention(heads_bsnd, queries, *facts.flash)
                              : kernels::packed_attention(heads_bsnd, queries, facts.sees, options_.softcap),
                  context);
  const at::Tensor heads_bnsd = heads_bsnd.transpose(1, 2);
  const at::Tensor q = heads_bnsd.narrow(1, 0, queries), k = heads_bnsd.narrow(1, queries, keys),
                   v = heads_bnsd.narrow(1, queries + keys, keys);
  if (context.cache) {
    const auto [all_k, all_v] = context.cache->extend(path(), k, v, context);
    const double cap = options_.softcap;
    const at::Tensor out = context.length == 1 ? kernels::next_token_attention(q, all_k, all_v, facts.sees, cap)
                                               : kernels::attention(q, all_k, all_v, facts.sees, cap);
    return output(out.transpose(1, 2), context);
  }
  const at::Tensor out_bhsd = drops ? dropped_core(q, k, v, facts, context) : ring_core(q, k, v, context);
  return output(out_bhsd.transpose(1, 2), context);
}

at::Tensor GroupedQueryAttention::output(const at::Tensor& out_bshd, const ForwardContext& context) {
  return out_->forward(exchange_heads_for_tokens(out_bshd, parallel_.ulysses)
                           .reshape({context.tokens(), own_heads_ * options_.head_dim}));
}

at::Tensor GroupedQueryAttention::ring_core(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                            const ForwardContext& context) {
  RingSamples samples{.order = parallel_.context.order(),
                      .whole_length = context.whole_length,
                      .window = options_.window,
                      .softcap = options_.softcap,
                      .documents_bS = context.documents_bS,
                      .gathers = parallel_.context.method == ContextMethod::all_gather};
  const bool masked = context.documents_bS.defined() || (options_.window > 0 && options_.window < context.whole_length);
  if (masked && options_.softcap == 0 && context.ring_plans &&
      kernels::has_flash_attention(q.device(), q.scalar_type(), q.size(3)))
    samples.plan = context.ring_plans->plan(samples.order, samples.whole_length, parallel_.ring.size(),
                                            parallel_.ring.rank(), samples.window, q.device());
  return ring_attention(q, k, v, samples, parallel_.ring);
}

at::Tensor GroupedQueryAttention::dropped_core(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                               const AttentionFacts& facts, const ForwardContext& context) {
  require<ConfigError>(parallel_.cp.size() == 1, "attention ", path(),
                       ": probabilities cannot be dropped with context parallelism\n  fix: attention_dropout = 0, or "
                       "cp = 1");
  const std::int64_t b = context.batch, h = own_heads_, s = context.length;
  const auto whole = at::TensorOptions().dtype(at::kLong).device(q.device());
  const at::Tensor samples_b = context.samples_T.view({b, s}).select(1, 0);
  const at::Tensor heads_h = at::arange(parallel_.tp.rank() * h, (parallel_.tp.rank() + 1) * h, whole);
  const at::Tensor rows_bhs =
      ((samples_b.view({b, 1, 1}) * options_.heads + heads_h.view({1, h, 1})) * context.whole_length +
       context.positions_T.view({b, 1, s}));
  return kernels::dropped_attention(
      q, k, v, facts.sees,
      {.p = dropout_->p(), .key = dropout_->key(context), .rows_bhs = rows_bhs, .row_width = context.whole_length});
}

}  // namespace trireme
