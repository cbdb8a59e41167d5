#include "trireme/kernels/matmul/matmul.hpp"

#include <optional>

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include "trireme/kernels/matmul/fused_matmul.hpp"
#include "trireme/kernels/matmul/gradient_place.hpp"
#include "trireme/kernels/rows/on_cuda.hpp"
#include "trireme/kernels/rows/rows.hpp"

#if defined(__linux__) && defined(__aarch64__)
#include <sys/auxv.h>
#endif

// m rows and n columns of a result, k inner dim; T tokens, K inputs and N outputs of a layer
namespace trireme::kernels {
namespace {

using namespace detail;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr std::int64_t kWidenedRows = 1024;  // at a time: limits the fp32 temporaries

struct CpuMultiplies {
  bool bf16 = false, f16 = false;
};

CpuMultiplies ask_cpu() {
#if defined(__linux__) && defined(__aarch64__)
  constexpr unsigned long kBf16 = 1UL << 14;  // HWCAP2_BF16, missing in older kernel headers
  return {.bf16 = (getauxval(AT_HWCAP2) & kBf16) != 0};
#elif defined(__x86_64__)
  // All CPUs with bf16 AMX tiles have these too.
  return {.bf16 = __builtin_cpu_supports("avx512bf16") != 0};
#else
  return {};
#endif
}

void require_product(const char* kernel, const at::Tensor& a, const at::Tensor& b, std::int64_t inner_a,
                     std::int64_t inner_b) {
  require(a.dim() == 2 && b.dim() == 2 && a.size(inner_a) == b.size(inner_b), kernel, " of sizes ", a.sizes(), " and ",
          b.sizes(), ": must be matrices, dim ", inner_a, " of the first as long as dim ", inner_b, " of the second");
  require(a.scalar_type() == b.scalar_type() && a.device() == b.device(), kernel, " of ", a.scalar_type(), " on ",
          a.device(), " and ", b.scalar_type(), " on ", b.device(), ": must be of one dtype and on one device");
}

bool must_widen(const at::Tensor& a) {
  return is_reduced(a.scalar_type()) && !multiplies_natively(a.scalar_type(), a.device());
}

/// f(first, count) over blocks of rows.
template <class F>
void in_row_blocks(std::int64_t rows, const F& f) {
  for (std::int64_t first = 0; first < rows; first += kWidenedRows) f(first, std::min(kWidenedRows, rows - first));
}

/// a b + bias (if defined), for bf16 and f16 that must be widened to fp32.
at::Tensor product_widened(const at::Tensor& a_mk, const at::Tensor& b_kn, const at::Tensor& bias_n) {
  const at::Tensor out_mn = at::empty({a_mk.size(0), b_kn.size(1)}, a_mk.options().requires_grad(false));
  const at::Tensor wide_kn = b_kn.to(at::kFloat), wide_n = bias_n.defined() ? bias_n.to(at::kFloat) : bias_n;
  in_row_blocks(a_mk.size(0), [&](std::int64_t first, std::int64_t count) {
    const at::Tensor rows = a_mk.narrow(0, first, count).to(at::kFloat);
    out_mn.narrow(0, first, count).copy_(wide_n.defined() ? at::addmm(wide_n, rows, wide_kn) : at::mm(rows, wide_kn));
  });
  return out_mn;
}

/// a b + bias (if defined), by ATen
at::Tensor product(const at::Tensor& a_mk, const at::Tensor& b_kn, const at::Tensor& bias_n = {}) {
  if (must_widen(a_mk)) return product_widened(a_mk, b_kn, bias_n);
  return bias_n.defined() ? at::addmm(bias_n, a_mk, b_kn) : at::mm(a_mk, b_kn);
}

/// out += a^T b, where out is fp32 and a and b are not.
void add_widened(at::Tensor out_mn, const at::Tensor& a_km, const at::Tensor& b_kn) {
  in_row_blocks(a_km.size(0), [&](std::int64_t first, std::int64_t count) {
    out_mn.addmm_(a_km.narrow(0, first, count).to(at::kFloat).t(), b_kn.narrow(0, first, count).to(at::kFloat));
  });
}

enum class Into { fp32_of_cpu, fp32_of_cuda, same, other };

Into check_out(const char* kernel, const at::Tensor& out_mn, const at::Tensor& a_km, const at::Tensor& b_kn) {
  require_product(kernel, a_km, b_kn, 0, 0);
  require_dtype(kernel, out_mn);
  require_like(kernel, "out", out_mn, {a_km.size(1), b_kn.size(1)}, out_mn.scalar_type(), a_km.device());
  if (is_reduced(a_km.scalar_type()) && out_mn.scalar_type() == at::kFloat)
    return a_km.is_cpu() ? Into::fp32_of_cpu : Into::fp32_of_cuda;
  return out_mn.scalar_type() == a_km.scalar_type() && !must_widen(a_km) ? Into::same : Into::other;
}

/// Its products of a GPU are ATen's: ranks that compute the same ones (a router's) get the same bits, which is not so
/// where each rank has chosen its algorithms.
struct Linear : torch::autograd::Function<Linear> {
  /// The bias is optional and not an undefined tensor: autograd queries its inputs for their device.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_TK, const at::Tensor& weight_NK,
                            const std::optional<at::Tensor>& bias_N) {
    ctx->save_for_backward({weight_NK.requires_grad() ? x_TK : at::Tensor(), weight_NK, bias_N.value_or(at::Tensor())});
    return product(x_TK, weight_NK.t(), bias_N.value_or(at::Tensor()));
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list dy) {
    require_first_order("linear");
    const auto kept = ctx->get_saved_variables();
    const at::Tensor dy_TN = dy[0].contiguous();
    at::Tensor dx_TK, dweight_NK, dbias_N;
    if (ctx->needs_input_grad(0)) dx_TK = product(dy_TN, kept[1]);
    if (ctx->needs_input_grad(1))
      dweight_NK = write_gradient(kept[1], [dy_TN, x_TK = kept[0]](const at::Tensor& value_NK, bool is_empty) {
        is_empty ? matmul_tn_out(value_NK, dy_TN, x_TK) : add_matmul_tn_(value_NK, dy_TN, x_TK);
      });
    if (kept[2].defined() && ctx->needs_input_grad(2)) dbias_N = write_bias_gradient(kept[2], dy_TN);
    return {dx_TK, dweight_NK, dbias_N};
  }
};

}  // namespace

void sum_rows_out(const at::Tensor& out_N, const at::Tensor& x_TN, bool add) {
  if (has_column_sums_on_cuda(x_TN)) return column_sums_on_cuda(out_N, x_TN, add);
  at::Tensor out = out_N, sum_N;
  if (x_TN.is_cpu()) {
    const std::int64_t N = x_TN.size(1);
    by_dtype("linear", x_TN.scalar_type(), [&]<class S>(S) {
      using W = Wide<S>;
      const S* const x = x_TN.const_data_ptr<S>();
      sum_N = sum_over_rows<W>(x_TN.size(0), N, out_N.options(), [=](std::int64_t first, std::int64_t last, W* sums) {
        for (std::int64_t t = first; t < last; ++t)
          for_lanes<W>(N,
                       [&](std::int64_t i, auto n) { store(sums + i, load(sums + i, n) + load(x + t * N + i, n), n); });
      });
    });
  } else {
    sum_N = x_TN.sum(0, /*keepdim=*/false, wide_dtype(x_TN.scalar_type()));
  }
  add ? out.add_(sum_N) : out.copy_(sum_N);
}

bool multiplies_natively(at::ScalarType dtype, at::Device device) {
  if (!is_reduced(dtype) || !device.is_cpu()) return true;
  static const CpuMultiplies cpu = ask_cpu();
  return dtype == at::kBFloat16 ? cpu.bf16 : cpu.f16;
}

at::Tensor matmul_nt(const at::Tensor& a_mk, const at::Tensor& b_nk) {
  require_product("matmul_nt", a_mk, b_nk, 1, 1);
  return has_fused_linear(a_mk, b_nk) ? linear_with_residual(a_mk, b_nk, {}, {}) : product(a_mk, b_nk.t());
}

at::Tensor matmul_nn(const at::Tensor& a_mk, const at::Tensor& b_kn) {
  require_product("matmul_nn", a_mk, b_kn, 1, 0);
  if (!has_fused_matmul(a_mk, b_kn)) return product(a_mk, b_kn);
  const at::Tensor out_mn = at::empty({a_mk.size(0), b_kn.size(1)}, a_mk.options().requires_grad(false));
  product_nn_out(out_mn, a_mk, b_kn);
  return out_mn;
}

void matmul_nn_out(const at::Tensor& out_mn, const at::Tensor& a_mk, const at::Tensor& b_kn) {
  require_product("matmul_nn_out", a_mk, b_kn, 1, 0);
  require_like("matmul_nn_out", "out", out_mn, {a_mk.size(0), b_kn.size(1)}, a_mk.scalar_type(), a_mk.device());
  at::Tensor out = out_mn;
  if (must_widen(a_mk))
    out.copy_(product_widened(a_mk, b_kn, {}));
  else if (has_fused_matmul(a_mk, b_kn))
    product_nn_out(out, a_mk, b_kn);
  else
    at::mm_out(out, a_mk, b_kn);
}

at::Tensor matmul_tn(const at::Tensor& a_km, const at::Tensor& b_kn) {
  require_product("matmul_tn", a_km, b_kn, 0, 0);
  if (!must_widen(a_km)) return at::mm(a_km.t(), b_kn);
  const at::Tensor out_mn = at::zeros({a_km.size(1), b_kn.size(1)}, a_km.options().dtype(at::kFloat));
  add_widened(out_mn, a_km, b_kn);
  return out_mn.to(a_km.scalar_type());
}

void matmul_tn_out(const at::Tensor& out_mn, const at::Tensor& a_km, const at::Tensor& b_kn) {
  at::Tensor out = out_mn;
  switch (check_out("matmul_tn_out", out_mn, a_km, b_kn)) {
    case Into::fp32_of_cpu: return add_widened(out.zero_(), a_km, b_kn);
    case Into::fp32_of_cuda: at::mm_out(out, a_km.t(), b_kn, at::kFloat); return;
    case Into::same: at::mm_out(out, a_km.t(), b_kn); return;
    case Into::other: out.copy_(matmul_tn(a_km, b_kn)); return;
  }
}

void add_matmul_tn_(const at::Tensor& out_mn, const at::Tensor& a_km, const at::Tensor& b_kn) {
  at::Tensor out = out_mn;
  switch (check_out("add_matmul_tn_", out_mn, a_km, b_kn)) {
    case Into::fp32_of_cpu: return add_widened(out, a_km, b_kn);
    case Into::fp32_of_cuda: at::addmm_out(out, out, a_km.t(), b_kn, at::kFloat); return;
    case Into::same: out.addmm_(a_km.t(), b_kn); return;
    case Into::other: {
      if (out.scalar_type() != a_km.scalar_type()) {
        out.add_(matmul_tn(a_km, b_kn));
        return;
      }
      at::Tensor wide_mn = out.to(at::kFloat);
      add_widened(wide_mn, a_km, b_kn);
      out.copy_(wide_mn);
      return;
    }
  }
}

at::Tensor linear(const at::Tensor& x_TK, const at::Tensor& weight_NK, const at::Tensor& bias_N) {
  require_dtype("linear", x_TK);
  require_product("linear", x_TK, weight_NK, 1, 1);
  if (bias_N.defined()) require_like("linear", "bias", bias_N, {weight_NK.size(0)}, x_TK.scalar_type(), x_TK.device());
  if (wants_grad(x_TK, weight_NK, bias_N)) {
    return Linear::apply(x_TK, weight_NK, bias_N.defined() ? std::optional(bias_N) : std::nullopt);
  }
  return product(x_TK, weight_NK.t(), bias_N);
}

}  // namespace trireme::kernels
