#include "trireme/nn/kv_cache.hpp"

#include <algorithm>

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include "trireme/nn/forward_context.hpp"

namespace trireme {
namespace {

/// With room for `length` tokens: grows by half, so that a long generation copies each token a few times only.
at::Tensor with_room(const at::Tensor& store, const at::Tensor& like, std::int64_t length) {
  if (store.defined() && store.size(2) >= length) return store;
  const std::int64_t capacity = std::max<std::int64_t>(64, store.defined() ? length + length / 2 : length + 64);
  at::Tensor larger = at::zeros({like.size(0), like.size(1), capacity, like.size(3)}, like.options());
  if (store.defined()) larger.narrow(2, 0, store.size(2)).copy_(store);
  return larger;
}

}  // namespace

KvCache::KeysAndValues KvCache::extend(const std::string& layer, const at::Tensor& k, const at::Tensor& v,
                                       const ForwardContext& context) {
  KeysAndValues& own = layers_[layer];
  const std::int64_t length = context.whole_length;
  own.k = with_room(own.k, k, length);
  own.v = with_room(own.v, v, length);
  const at::Tensor positions_bs = context.positions_T.view({context.batch, context.length});
  const at::Tensor rows_b1 = at::arange(context.batch, positions_bs.options()).unsqueeze(1);
  // Indexed as [b, token, g, d]: the two indices are then side by side.
  own.k.transpose(1, 2).index_put_({rows_b1, positions_bs}, k.transpose(1, 2));
  own.v.transpose(1, 2).index_put_({rows_b1, positions_bs}, v.transpose(1, 2));
  return {own.k.narrow(2, 0, length), own.v.narrow(2, 0, length)};
}

at::Tensor cached_attention_mask(const ForwardContext& context, std::int64_t window) {
  const at::Tensor queries_bs1 = context.positions_T.view({context.batch, context.length, 1});
  const at::Tensor keys_L = at::arange(context.whole_length, queries_bs1.options());
  at::Tensor sees = keys_L.le(queries_bs1);
  if (window > 0) sees = sees.logical_and(keys_L.gt(queries_bs1 - window));
  return sees.unsqueeze(1);
}

}  // namespace trireme
