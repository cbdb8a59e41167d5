#include "trireme/kernels/fp8.hpp"

#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/on_cuda.hpp"

// m rows and n columns of a result, k inner dim
namespace trireme::kernels {
namespace {

using detail::largest_fp8;

constexpr std::int64_t kMultiple = 16;

at::ScalarType type_of(Fp8 format) { return format == Fp8::e4m3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2; }

bool is_fp8(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat8_e4m3fn || x.scalar_type() == at::kFloat8_e5m2;
}

at::Tensor scale_on_cpu(const at::Tensor& x, Fp8 format) {
  const at::Tensor largest = x.to(at::kFloat).abs().nan_to_num(0, 0, 0).max();
  // The exponent of the quotient, rounded down; 1 for a matrix of zeros.
  const at::Tensor factor = (largest.reciprocal() * largest_fp8(format)).log2().floor().clamp(-126, 126).exp2();
  const at::Tensor used = at::where(largest > 0, factor, at::ones_like(factor));
  return at::stack({used, used.reciprocal()}).unsqueeze(1).repeat({1, 4});
}

/// Saturates, and infinity becomes NaN, as in the kernel.
at::Tensor rounded_on_cpu(const at::Tensor& x, const at::Tensor& scale, Fp8 format) {
  const double most = largest_fp8(format);
  const at::Tensor wide = x.to(at::kFloat);
  return (wide * scale[0][0]).clamp(-most, most).masked_fill(wide.isinf(), NAN).to(type_of(format));
}

at::Tensor widened(const at::Tensor& x, const at::Tensor& scale) { return x.to(at::kFloat) * scale[1][0]; }

void require_fp8_product(const at::Tensor& a_mk, const at::Tensor& b_nk) {
  require(is_fp8(a_mk) && is_fp8(b_nk) && a_mk.dim() == 2 && b_nk.dim() == 2 && a_mk.size(1) == b_nk.size(1) &&
              a_mk.is_contiguous() && b_nk.is_contiguous() && has_fp8_sizes(a_mk) && has_fp8_sizes(b_nk),
          "fp8_matmul_nt of ", a_mk.scalar_type(), " ", a_mk.sizes(), " and ", b_nk.scalar_type(), " ", b_nk.sizes(),
          ": must be contiguous matrices of fp8 with the same number of columns, all sizes multiples of ", kMultiple);
}

}  // namespace

std::string why_no_fp8(at::Device device) {
  return device.is_cuda() ? detail::why_no_fp8_on_cuda(device) : text("the device is the ", device);
}

at::Tensor fp8_scale(const at::Tensor& x, Fp8 format) {
  require(x.numel() > 0, "fp8_scale of a tensor without elements");
  if (!x.is_cuda()) return scale_on_cpu(x, format);
  return detail::fp8_scale_on_cuda(x.contiguous(), format);
}

bool has_fp8_sizes(const at::Tensor& x) {
  return x.dim() == 2 && x.numel() > 0 && x.size(0) % kMultiple == 0 && x.size(1) % kMultiple == 0;
}

Fp8Matrix to_fp8(const at::Tensor& x_mn, Fp8 format, Fp8Layout layout, const at::Tensor& scale) {
  require(has_fp8_sizes(x_mn) && x_mn.is_contiguous(), "to_fp8 of a tensor of sizes ", x_mn.sizes(),
          ": must be a contiguous matrix, both sizes multiples of ", kMultiple);
  Fp8Matrix out{.rows = {}, .columns = {}, .scale = scale.defined() ? scale : fp8_scale(x_mn, format)};
  if (x_mn.is_cuda()) {
    const auto options = x_mn.options().dtype(type_of(format)).requires_grad(false);
    if (layout != Fp8Layout::columns) out.rows = at::empty(x_mn.sizes(), options);
    if (layout != Fp8Layout::rows) out.columns = at::empty({x_mn.size(1), x_mn.size(0)}, options);
    detail::to_fp8_on_cuda(x_mn, out.scale, format, out.rows, out.columns);
    return out;
  }
  const at::Tensor rounded = rounded_on_cpu(x_mn, out.scale, format);
  if (layout != Fp8Layout::columns) out.rows = rounded;
  if (layout != Fp8Layout::rows) out.columns = rounded.t().contiguous();
  return out;
}

at::Tensor fp8_matmul_nt(const at::Tensor& a_mk, const at::Tensor& scale_a, const at::Tensor& b_nk,
                         const at::Tensor& scale_b, at::ScalarType dtype, const at::Tensor& bias_n, bool fast) {
  require_fp8_product(a_mk, b_nk);
  const at::Tensor out_mn = at::empty({a_mk.size(0), b_nk.size(0)}, a_mk.options().dtype(dtype).requires_grad(false));
  if (out_mn.is_cuda()) {
    detail::fp8_product_on_cuda(out_mn, {a_mk, scale_a}, {b_nk, scale_b}, bias_n, /*add=*/false, fast);
    return out_mn;
  }
  const at::Tensor product = at::mm(widened(a_mk, scale_a), widened(b_nk, scale_b).t());
  return (bias_n.defined() ? product + bias_n.to(at::kFloat) : product).to(dtype);
}

void fp8_matmul_nt_out(const at::Tensor& out_mn, const at::Tensor& a_mk, const at::Tensor& scale_a,
                       const at::Tensor& b_nk, const at::Tensor& scale_b, bool add) {
  require_fp8_product(a_mk, b_nk);
  require(out_mn.sizes() == at::IntArrayRef({a_mk.size(0), b_nk.size(0)}) && out_mn.is_contiguous(),
          "fp8_matmul_nt_out: out of sizes ", out_mn.sizes(), " for operands of ", a_mk.sizes(), " and ", b_nk.sizes());
  if (out_mn.is_cuda())
    return detail::fp8_product_on_cuda(out_mn, {a_mk, scale_a}, {b_nk, scale_b}, {}, add, /*fast=*/false);
  const at::Tensor product = at::mm(widened(a_mk, scale_a), widened(b_nk, scale_b).t());
  add ? out_mn.add_(product) : out_mn.copy_(product);
}

}  // namespace trireme::kernels
