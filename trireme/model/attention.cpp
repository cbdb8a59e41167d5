#include "trireme/model/attention.hpp"

#include "trireme/nn/kv_cache.hpp"

namespace trireme {

std::optional<kernels::FlashMask> flash_mask(const ForwardContext& context, const AttentionOptions& options,
                                             const Parallel& parallel, at::ScalarType dtype) {
  const bool windowed = options.window > 0 && options.window < context.whole_length,
             apart = context.documents_bS.defined();
  const bool drops = options.dropout > 0 && context.training;
  if (parallel.ring.size() > 1 || context.cache || drops || options.softcap > 0 || (!windowed && !apart))
    return std::nullopt;
  if (apart && !context.document_bounds.defined()) return std::nullopt;
  if (!kernels::has_flash_attention(context.positions_T.device(), dtype, options.head_dim)) return std::nullopt;
  return kernels::FlashMask{
      .bounds = context.document_bounds, .longest = context.longest_document, .window = windowed ? options.window : 0};
}

at::Tensor attention_mask(const ForwardContext& context, std::int64_t window, const Parallel& parallel) {
  const std::int64_t length = context.whole_length;
  if (context.cache) return cached_attention_mask(context, window);
  const bool windowed = window > 0 && window < length, apart = context.documents_bS.defined();
  if (parallel.ring.size() > 1 || (!windowed && !apart)) return {};
  at::Tensor sees = at::ones({length, length}, context.positions_T.options().dtype(at::kBool)).tril_();
  if (windowed) sees.triu_(1 - window);
  if (!apart) return sees;
  const at::Tensor& documents_bS = context.documents_bS;
  return documents_bS.unsqueeze(2).eq(documents_bS.unsqueeze(1)).logical_and_(sees).unsqueeze(1);
}

}  // namespace trireme
