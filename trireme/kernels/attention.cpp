#include "trireme/kernels/attention.hpp"

#include <optional>

#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/attention_block.hpp"
#include "trireme/kernels/matmul.hpp"

// b samples, h heads, g KV heads, s tokens, d head dim
namespace trireme::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

PartialAttention forward_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& sees) {
  const PartialAttention wide = attention_block(q, k, v, {.causal = !sees.defined(), .sees = sees});
  // The layout of the fused f32 kernel: the token dim before the head dim.
  return {wide.out.transpose(1, 2).to(q.scalar_type()).transpose(1, 2), wide.lse};
}

struct AttentionInF32 : torch::autograd::Function<AttentionInF32> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::optional<at::Tensor>& sees) {
    const PartialAttention wide = forward_of(q, k, v, sees.value_or(at::Tensor()));
    tensor_list kept{q, k, v, wide.out, wide.lse};
    if (sees) kept.push_back(*sees);
    ctx->save_for_backward(kept);
    return wide.out;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const tensor_list kept = ctx->get_saved_variables();
    const at::Tensor &q = kept[0], &k = kept[1], &v = kept[2];
    const at::Tensor sees = kept.size() > 5 ? kept[5] : at::Tensor();
    const AttentionGradients wide =
        attention_block_backward(grads[0], q, k, v, kept[3], kept[4], {.causal = !sees.defined(), .sees = sees});
    const at::ScalarType dtype = q.scalar_type();
    return {wide.dq.to(dtype), wide.dk.to(dtype), wide.dv.to(dtype), at::Tensor()};
  }
};

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& sees) {
  require(q.dim() == 4 && k.sizes() == v.sizes() && k.dim() == 4 && q.size(1) % k.size(1) == 0,
          "attention: q of sizes ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes(),
          ": must be [b, heads, s, d], KV heads dividing the heads");
  const std::optional<at::Tensor> mask = sees.defined() ? std::optional(sees) : std::nullopt;
  const bool low = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
  if (!low || !q.is_cpu() || multiplies_natively(q.scalar_type(), q.device()))
    return at::scaled_dot_product_attention(q, k, v, mask, /*dropout_p=*/0.0, /*is_causal=*/!mask.has_value(),
                                            /*scale=*/std::nullopt, /*enable_gqa=*/q.size(1) != k.size(1));
  if (!at::GradMode::is_enabled() || !(q.requires_grad() || k.requires_grad() || v.requires_grad()))
    return forward_of(q, k, v, sees).out;
  return AttentionInF32::apply(q, k, v, mask);
}

}  // namespace trireme::kernels
