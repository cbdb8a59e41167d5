#include "trireme/kernels/attention/attention.hpp"

#include <cmath>
#include <limits>
#include <optional>

#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/attention/attention_block.hpp"
#include "trireme/kernels/matmul/matmul.hpp"
#include "trireme/kernels/rows/dtype.hpp"
#include "trireme/kernels/rows/first_order.hpp"

// b samples, h heads, g KV heads, s tokens, d head dim
namespace trireme::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

PartialAttention forward_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& sees,
                            double softcap) {
  const PartialAttention wide = attention_block(q, k, v, {.causal = !sees.defined(), .sees = sees, .softcap = softcap});
  // The layout of the fused f32 kernel: the token dim before the head dim.
  return {wide.out.transpose(1, 2).to(q.scalar_type()).transpose(1, 2), wide.lse};
}

struct AttentionOfBlock : torch::autograd::Function<AttentionOfBlock> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::optional<at::Tensor>& sees, double softcap) {
    const PartialAttention wide = forward_of(q, k, v, sees.value_or(at::Tensor()), softcap);
    ctx->saved_data["softcap"] = softcap;
    tensor_list kept{q, k, v, wide.out, wide.lse};
    if (sees) kept.push_back(*sees);
    ctx->save_for_backward(kept);
    return wide.out;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const tensor_list kept = ctx->get_saved_variables();
    const at::Tensor &q = kept[0], &k = kept[1], &v = kept[2];
    const at::Tensor sees = kept.size() > 5 ? kept[5] : at::Tensor();
    const AttentionGradients wide = attention_block_backward(
        grads[0], q, k, v, kept[3], kept[4],
        {.causal = !sees.defined(), .sees = sees, .softcap = ctx->saved_data["softcap"].toDouble()});
    const at::ScalarType dtype = q.scalar_type();
    return {wide.dq.to(dtype), wide.dk.to(dtype), wide.dv.to(dtype), at::Tensor(), at::Tensor()};
  }
};

struct HeadViews {
  at::Tensor q, k, v;  // [b, heads, s, d], views
};
HeadViews unpacked(const at::Tensor& heads_bsnd, std::int64_t h) {
  const at::Tensor heads_bnsd = heads_bsnd.transpose(1, 2);
  const std::int64_t g = (heads_bsnd.size(2) - h) / 2;
  return {heads_bnsd.narrow(1, 0, h), heads_bnsd.narrow(1, h, g), heads_bnsd.narrow(1, h + g, g)};
}

struct PackedAttention : torch::autograd::Function<PackedAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& heads_bsnd, std::int64_t h) {
    const auto [q, k, v] = unpacked(heads_bsnd, h);
    const PartialAttention whole = attention_block(q, k, v, {.causal = true});
    const at::Tensor out_bshd = whole.out.transpose(1, 2).contiguous();
    ctx->saved_data["h"] = h;
    ctx->save_for_backward({heads_bsnd, out_bshd, whole.lse});
    return out_bshd;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    require_first_order("attention");
    const tensor_list kept = ctx->get_saved_variables();
    const auto [q, k, v] = unpacked(kept[0], ctx->saved_data["h"].toInt());
    const AttentionGradients d = attention_block_backward(grads[0].contiguous().transpose(1, 2), q, k, v,
                                                          kept[1].transpose(1, 2), kept[2], {.causal = true});
    return {at::cat({d.dq.transpose(1, 2), d.dk.transpose(1, 2), d.dv.transpose(1, 2)}, 2), at::Tensor()};
  }
};

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& sees,
                     double softcap) {
  require(q.dim() == 4 && k.sizes() == v.sizes() && k.dim() == 4 && q.size(1) % k.size(1) == 0,
          "attention: q of sizes ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes(),
          ": must be [b, heads, s, d], KV heads dividing the heads");
  const std::optional<at::Tensor> mask = sees.defined() ? std::optional(sees) : std::nullopt;
  const bool low = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
  const bool in_f32 = low && q.is_cpu() && !multiplies_natively(q.scalar_type(), q.device());
  // All fused kernels of a GPU are called as blocks, which give cuDNN one layout: see in_layout_of().
  if (!in_f32 && softcap == 0 && !has_fused_gpu_block(q, k, v, {.causal = true, .sees = sees}))
    return at::scaled_dot_product_attention(q, k, v, mask, /*dropout_p=*/0.0, /*is_causal=*/!mask.has_value(),
                                            /*scale=*/std::nullopt, /*enable_gqa=*/q.size(1) != k.size(1));
  if (!at::GradMode::is_enabled() || !(q.requires_grad() || k.requires_grad() || v.requires_grad()))
    return forward_of(q, k, v, sees, softcap).out;
  return AttentionOfBlock::apply(q, k, v, mask, softcap);
}

at::Tensor next_token_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& sees,
                                double softcap) {
  require(q.dim() == 4 && q.size(2) == 1 && k.sizes() == v.sizes() && q.size(1) % k.size(1) == 0,
          "next_token_attention: q of sizes ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes());
  const std::int64_t b = q.size(0), h = q.size(1), g = k.size(1), d = q.size(3);
  // The query heads of a KV head are rows of one product.
  const at::ScalarType wide = wide_dtype(q.scalar_type());
  const at::Tensor q_bgrd = q.reshape({b, g, h / g, d}).to(wide) / std::sqrt(static_cast<double>(d));
  at::Tensor scores = at::matmul(q_bgrd, k.transpose(2, 3).to(wide));
  if (softcap > 0) scores = scores.div_(softcap).tanh_().mul_(softcap);
  const at::Tensor p =
      at::softmax(scores.masked_fill(sees.logical_not(), -std::numeric_limits<double>::infinity()), -1);
  return at::matmul(p, v.to(wide)).to(q.scalar_type()).view({b, h, 1, d});
}

at::Tensor packed_attention(const at::Tensor& heads_bsnd, std::int64_t h, const at::Tensor& sees, double softcap) {
  require(heads_bsnd.dim() == 4 && h > 0 && heads_bsnd.size(2) > h && (heads_bsnd.size(2) - h) % 2 == 0,
          "packed_attention: ", h, " heads of a tensor of sizes ", heads_bsnd.sizes(),
          ": must be [b, s, heads + 2 kv_heads, d]");
  const auto [q, k, v] = unpacked(heads_bsnd, h);
  const bool differentiated = at::GradMode::is_enabled() && heads_bsnd.requires_grad();
  if (differentiated && heads_bsnd.is_contiguous() &&
      has_fused_gpu_block(q, k, v, {.causal = true, .sees = sees, .softcap = softcap}))
    return PackedAttention::apply(heads_bsnd, h);
  return attention(q, k, v, sees, softcap).transpose(1, 2);
}

}  // namespace trireme::kernels
