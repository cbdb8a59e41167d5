#include "trireme/kernels/attention.hpp"

#include <limits>
#include <optional>

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/matmul.hpp"

// b samples, h heads, g KV heads, s tokens, d head dim
namespace trireme::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// Converted to f32, with KV heads repeated for every query head.
at::Tensor widened(const at::Tensor& x, std::int64_t repeats) {
  const at::Tensor wide = x.to(at::kFloat);
  return repeats == 1 ? wide : wide.repeat_interleave(repeats, 1);
}

/// Sums the gradients of the repeats of a KV head.
at::Tensor narrowed(const at::Tensor& dx, std::int64_t repeats, at::ScalarType dtype) {
  return (repeats == 1 ? dx : dx.unflatten(1, {-1, repeats}).sum(2)).to(dtype);
}

/// 0 if a query attends to a key, else minus infinity.
std::optional<at::Tensor> added_mask(const at::Tensor& sees) {
  if (!sees.defined()) return std::nullopt;
  return at::zeros(sees.sizes(), sees.options().dtype(at::kFloat))
      .masked_fill_(sees.logical_not(), -std::numeric_limits<float>::infinity());
}

struct OutputAndSum {
  at::Tensor out, lse;
};

OutputAndSum forward_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& sees) {
  const std::int64_t repeats = q.size(1) / k.size(1);
  auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
      q.to(at::kFloat), widened(k, repeats), widened(v, repeats), 0.0, !sees.defined(), added_mask(sees));
  // The layout of the fused f32 kernel: the token dim before the head dim.
  return {out.transpose(1, 2).to(q.scalar_type()).transpose(1, 2), lse};
}

struct AttentionInF32 : torch::autograd::Function<AttentionInF32> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::optional<at::Tensor>& sees) {
    const OutputAndSum wide = forward_of(q, k, v, sees.value_or(at::Tensor()));
    tensor_list kept{q, k, v, wide.out, wide.lse};
    if (sees) kept.push_back(*sees);
    ctx->save_for_backward(kept);
    return wide.out;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const tensor_list kept = ctx->get_saved_variables();
    const at::Tensor &q = kept[0], &k = kept[1], &v = kept[2];
    const at::Tensor sees = kept.size() > 5 ? kept[5] : at::Tensor();
    const std::int64_t repeats = q.size(1) / k.size(1);
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        grads[0].to(at::kFloat), q.to(at::kFloat), widened(k, repeats), widened(v, repeats), kept[3].to(at::kFloat),
        kept[4], 0.0, !sees.defined(), added_mask(sees));
    const at::ScalarType dtype = q.scalar_type();
    return {dq.to(dtype), narrowed(dk, repeats, dtype), narrowed(dv, repeats, dtype), at::Tensor()};
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
