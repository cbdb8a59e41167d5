#include "trireme/kernels/matmul/fp8.hpp"

#include <cmath>
#include <optional>

#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/matmul/fp8_cuda.hpp"

// m rows and n columns of a result, k inner dim
namespace trireme::kernels {
namespace {

constexpr std::int64_t kMultiple = 16, kTensorScale = 4;

at::ScalarType type_of(Fp8 format) { return format == Fp8::e4m3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2; }

bool is_fp8(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat8_e4m3fn || x.scalar_type() == at::kFloat8_e5m2;
}

/// [2, n] for n largest elements.
at::Tensor scales_on_cpu(const at::Tensor& largest, Fp8 format) {
  // The exponent of the quotient, rounded down; 1 for zeros.
  const at::Tensor factor = (largest.reciprocal() * largest_of_format(format)).log2().floor().clamp(-126, 126).exp2();
  const at::Tensor used = at::where(largest > 0, factor, at::ones_like(factor));
  return at::stack({used, used.reciprocal()});
}

at::Tensor finite_sizes(const at::Tensor& x) { return x.to(at::kFloat).abs().nan_to_num(0, 0, 0); }

/// `factor` [m, 1], [1, n] or [1, 1]. Saturates, and infinity becomes NaN, as in the kernel.
at::Tensor rounded_on_cpu(const at::Tensor& x, const at::Tensor& factor, Fp8 format) {
  const double most = largest_of_format(format);
  const at::Tensor wide = x.to(at::kFloat);
  return (wide * factor).clamp(-most, most).masked_fill(wide.isinf(), NAN).to(type_of(format));
}

bool is_of_rows(const at::Tensor& scale) { return scale.size(1) != kTensorScale; }

at::Tensor widened(const at::Tensor& x_mn, const at::Tensor& scale) {
  return x_mn.to(at::kFloat) * (is_of_rows(scale) ? scale[1].unsqueeze(1) : scale[1].narrow(0, 0, 1));
}

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
  if (x.is_cuda()) return detail::fp8_scales_on_cuda(detail::fp8_largest_on_cuda(x.contiguous()), format);
  return scales_on_cpu(finite_sizes(x).max().unsqueeze(0), format).repeat({1, kTensorScale});
}

bool has_fp8_sizes(const at::Tensor& x) {
  return x.dim() == 2 && x.numel() > 0 && x.size(0) % kMultiple == 0 && x.size(1) % kMultiple == 0;
}

namespace {

Fp8Matrix to_fp8_on_cpu(const at::Tensor& x_mn, Fp8 format, const Fp8Options& options) {
  Fp8Matrix out;
  if (options.largest.defined()) options.largest.copy_(at::maximum(options.largest, finite_sizes(x_mn).max()));
  if (options.scaling == Fp8Scaling::tensor) {
    out.scale = out.column_scale = options.scale.defined() ? options.scale : fp8_scale(x_mn, format);
    out.rows = rounded_on_cpu(x_mn, out.scale[0].narrow(0, 0, 1), format);
    out.columns = out.rows.t().contiguous();
    return out;
  }
  out.scale = scales_on_cpu(finite_sizes(x_mn).amax(1), format);
  out.column_scale = scales_on_cpu(finite_sizes(x_mn).amax(0), format);
  out.rows = rounded_on_cpu(x_mn, out.scale[0].unsqueeze(1), format);
  out.columns = rounded_on_cpu(x_mn, out.column_scale[0].unsqueeze(0), format).t().contiguous();
  return out;
}

Fp8Matrix to_fp8_on_gpu(const at::Tensor& x_mn, Fp8 format, const Fp8Options& options, bool rows, bool columns) {
  Fp8Matrix out;
  if (options.scaling == Fp8Scaling::tensor) {
    out.scale = out.column_scale = options.scale.defined() ? options.scale : fp8_scale(x_mn, format);
  } else {
    const detail::Fp8Largest largest = detail::fp8_largest_of_lines_on_cuda(x_mn);
    out.scale = detail::fp8_scales_on_cuda(largest.of_rows, format);
    out.column_scale = detail::fp8_scales_on_cuda(largest.of_columns, format);
  }
  const auto to = x_mn.options().dtype(type_of(format)).requires_grad(false);
  if (rows) out.rows = at::empty(x_mn.sizes(), to);
  if (columns) out.columns = at::empty({x_mn.size(1), x_mn.size(0)}, to);
  detail::to_fp8_on_cuda(x_mn, format, out, options.largest);
  return out;
}

}  // namespace

Fp8Matrix to_fp8(const at::Tensor& x_mn, Fp8 format, Fp8Layout layout, const Fp8Options& options) {
  require(has_fp8_sizes(x_mn) && x_mn.is_contiguous(), "to_fp8 of a tensor of sizes ", x_mn.sizes(),
          ": must be a contiguous matrix, both sizes multiples of ", kMultiple);
  require(options.scaling == Fp8Scaling::tensor || !options.scale.defined(), "to_fp8: scales of rows are those of x");
  const bool rows = layout != Fp8Layout::columns, columns = layout != Fp8Layout::rows;
  if (x_mn.is_cuda()) return to_fp8_on_gpu(x_mn, format, options, rows, columns);
  Fp8Matrix out = to_fp8_on_cpu(x_mn, format, options);
  if (!rows) out.rows.reset();
  if (!columns) out.columns.reset();
  return out;
}

namespace {

/// By ATen, which has kernels for scales of rows: bf16 results.
at::Tensor row_scaled_product(const at::Tensor& a_mk, const at::Tensor& scale_a, const at::Tensor& b_nk,
                              const at::Tensor& scale_b, const at::Tensor& bias_n, bool fast) {
  require(b_nk.scalar_type() == at::kFloat8_e4m3fn, "fp8_matmul_nt with scales of rows: the second operand is ",
          b_nk.scalar_type(), ", must be e4m3");
  const std::optional<at::Tensor> bias = bias_n.defined() ? std::optional(bias_n.to(at::kBFloat16)) : std::nullopt;
  return at::_scaled_mm(a_mk, b_nk.t(), scale_a[1].unsqueeze(1), scale_b[1].unsqueeze(0), bias, std::nullopt,
                        at::kBFloat16, fast);
}

}  // namespace

at::Tensor fp8_matmul_nt(const at::Tensor& a_mk, const at::Tensor& scale_a, const at::Tensor& b_nk,
                         const at::Tensor& scale_b, at::ScalarType dtype, const at::Tensor& bias_n, bool fast) {
  require_fp8_product(a_mk, b_nk);
  if (a_mk.is_cuda() && is_of_rows(scale_a))
    return row_scaled_product(a_mk, scale_a, b_nk, scale_b, bias_n, fast).to(dtype);
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
  const bool of_rows = is_of_rows(scale_a);
  if (out_mn.is_cuda() && !of_rows)
    return detail::fp8_product_on_cuda(out_mn, {a_mk, scale_a}, {b_nk, scale_b}, {}, add, /*fast=*/false);
  const at::Tensor product = out_mn.is_cuda() ? row_scaled_product(a_mk, scale_a, b_nk, scale_b, {}, /*fast=*/false)
                                              : at::mm(widened(a_mk, scale_a), widened(b_nk, scale_b).t());
  add ? out_mn.add_(product) : out_mn.copy_(product);
}

}  // namespace trireme::kernels
