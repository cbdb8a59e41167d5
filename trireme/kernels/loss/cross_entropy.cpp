#include "trireme/kernels/loss/cross_entropy.hpp"

#include <cmath>
#include <limits>
#include <tuple>

#include <ATen/ops/_assert_async.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "trireme/kernels/rows/rows.hpp"

// C or T rows, V columns
namespace trireme::kernels {
namespace {

using namespace detail;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

template <class S, class W = Wide<S>>
[[gnu::flatten]] W max_of_row(const S* x, std::int64_t V) {
  Lanes<W> most(-std::numeric_limits<W>::infinity());
  for_lanes<W>(V, [&](std::int64_t i, auto n) {
    most = max(only(load(x + i, n), n, -std::numeric_limits<W>::infinity()), most);
  });
  return largest(most);
}

template <class W>
struct Sums {
  W exps, differences;
};

/// Sums of exp(x - most) and of x - most; writes the exponentials if kWrites.
template <bool kWrites, class S, class W = Wide<S>>
[[gnu::flatten]] Sums<W> exps_of_row(const S* x, W most, S* to, std::int64_t V) {
  Lanes<W> exps, differences;
  for_lanes<W>(V, [&](std::int64_t i, auto n) {
    const Lanes<W> difference = load(x + i, n) - most, e = exp(difference);
    if constexpr (kWrites) store(to + i, e, n);
    exps += only(e, n, W{0});
    differences += only(difference, n, W{0});
  });
  return {sum(exps), sum(differences)};
}

template <class W>
[[gnu::flatten]] void grads_of_row(W* x, W scale, W everywhere, std::int64_t V) {
  for_lanes<W>(V, [&](std::int64_t i, auto n) { store(x + i, load(x + i, n) * scale - everywhere, n); });
}

/// exp(x - most) * scale: softmax times the gradient of the loss.
template <class S, class W = Wide<S>>
[[gnu::flatten]] void softmax_of_row(const S* x, W most, W scale, S* to, std::int64_t V) {
  for_lanes<W>(V, [&](std::int64_t i, auto n) { store(to + i, exp(load(x + i, n) - most) * scale, n); });
}

void require_logits(const char* kernel, const at::Tensor& logits_CV) {
  require(logits_CV.dim() == 2 && logits_CV.size(1) > 0, kernel, ": logits of sizes ", logits_CV.sizes(),
          ": must be [C, V] with a V of 1 or more");
  require(logits_CV.scalar_type() == at::kFloat || logits_CV.scalar_type() == at::kDouble, kernel, ": logits of ",
          logits_CV.scalar_type(), ": must be float or double");
  require(logits_CV.is_contiguous() || (logits_CV.stride(1) == 1 && logits_CV.stride(0) >= logits_CV.size(1)), kernel,
          ": logits of sizes ", logits_CV.sizes(), " have strides ", logits_CV.strides(),
          ": each row must be contiguous");
}

/// Calls f(W{}) for float or double.
template <class F>
void by_wide_dtype(at::ScalarType dtype, const F& f) {
  if (dtype == at::kDouble)
    f(double{});
  else
    f(float{});
}

/// Whether a row's target is one of the columns, and its column index (arbitrary otherwise).
std::tuple<at::Tensor, at::Tensor> target_columns(const at::Tensor& targets_C, std::int64_t first, std::int64_t V) {
  const at::Tensor column_C = targets_C - first;
  const at::Tensor here_C = column_C.ge(0).logical_and_(column_C.lt(V));
  return {here_C, column_C.clamp(0, V - 1).unsqueeze(1)};
}

// --- one rank -------------------------------------------------------------------------------------------------------

struct Losses {
  at::Tensor losses_T, max_T, sum_T;
};

Losses losses_of(const at::Tensor& logits_TV, const at::Tensor& targets_T, std::int64_t ignore_index) {
  const std::int64_t T = logits_TV.size(0), V = logits_TV.size(1);
  const auto wide = logits_TV.options().dtype(wide_dtype(logits_TV.scalar_type())).requires_grad(false);
  if (!logits_TV.is_cpu()) {
    const at::Tensor here_T = std::get<0>(target_columns(targets_T, 0, V));
    at::_assert_async(here_T.logical_or(targets_T == ignore_index).all());
    const at::Tensor exps_TV = logits_TV.to(wide.dtype(), /*non_blocking=*/false, /*copy=*/true);
    const at::Tensor max_T = row_max(exps_TV);
    const at::Tensor sums_3T = exp_sums_(exps_TV, max_T, targets_T, 0);
    const at::Tensor losses_T = (sums_3T[0].log() - sums_3T[1]).masked_fill_(targets_T == ignore_index, 0);
    return {losses_T, max_T, sums_3T[0].clone()};
  }
  Losses of{at::empty({T}, wide), at::empty({T}, wide), at::empty({T}, wide)};
  const std::int64_t* const targets = targets_T.const_data_ptr<std::int64_t>();
  by_dtype("cross_entropy", logits_TV.scalar_type(), [&]<class S>(S) {
    using W = Wide<S>;
    const S* const logits = logits_TV.const_data_ptr<S>();
    W *const losses = of.losses_T.mutable_data_ptr<W>(), *const max = of.max_T.mutable_data_ptr<W>(),
             *const sum = of.sum_T.mutable_data_ptr<W>();
    over_rows(T, V, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        const std::int64_t target = targets[t];
        losses[t] = max[t] = 0;
        sum[t] = 1;
        if (target == ignore_index) continue;
        require<DataError>(target >= 0 && target < V, "cross_entropy: target ", target, " of row ", t,
                           " is outside of the vocabulary, 0 to ", V - 1, " (ignored: ", ignore_index, ")");
        const S* const row = logits + t * V;
        max[t] = max_of_row(row, V);
        sum[t] = exps_of_row<false, S>(row, max[t], nullptr, V).exps;
        losses[t] = std::log(sum[t]) - (static_cast<W>(row[target]) - max[t]);
      }
    });
  });
  return of;
}

at::Tensor grads_of(const at::Tensor& dloss_T, const at::Tensor& logits_TV, const at::Tensor& targets_T,
                    const at::Tensor& max_T, const at::Tensor& sum_T, std::int64_t ignore_index) {
  const std::int64_t T = logits_TV.size(0), V = logits_TV.size(1);
  if (!logits_TV.is_cpu()) {
    const at::Tensor of_T = dloss_T.masked_fill(targets_T == ignore_index, 0);
    const at::Tensor exps_TV = (logits_TV - max_T.unsqueeze(1)).exp_();
    logit_grads_(exps_TV, of_T / sum_T, targets_T, 0, of_T);
    return exps_TV.to(logits_TV.scalar_type());
  }
  const at::Tensor d_TV = at::empty_like(logits_TV);
  const std::int64_t* const targets = targets_T.const_data_ptr<std::int64_t>();
  by_dtype("cross_entropy", logits_TV.scalar_type(), [&]<class S>(S) {
    using W = Wide<S>;
    const S* const logits = logits_TV.const_data_ptr<S>();
    const W *const dloss = dloss_T.const_data_ptr<W>(), *const max = max_T.const_data_ptr<W>(),
                   *const sum = sum_T.const_data_ptr<W>();
    S* const to = d_TV.mutable_data_ptr<S>();
    over_rows(T, V, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        const std::int64_t target = targets[t];
        if (target == ignore_index) {
          std::fill_n(to + t * V, V, S(0));
          continue;
        }
        const W scale = dloss[t] / sum[t];
        softmax_of_row(logits + t * V, max[t], scale, to + t * V, V);
        // Recomputed, so that it is rounded only once.
        const W at_target = std::exp(static_cast<W>(logits[t * V + target]) - max[t]) * scale - dloss[t];
        to[t * V + target] = static_cast<S>(at_target);
      }
    });
  });
  return d_TV;
}

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits_TV, const at::Tensor& targets_T,
                            std::int64_t ignore_index) {
    const Losses of = losses_of(logits_TV, targets_T, ignore_index);
    ctx->save_for_backward({logits_TV, targets_T, of.max_T, of.sum_T});
    ctx->saved_data["ignore_index"] = ignore_index;
    return of.losses_T;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list dy) {
    require_first_order("cross_entropy");
    const auto kept = ctx->get_saved_variables();
    return {grads_of(dy[0].contiguous(), kept[0], kept[1], kept[2], kept[3], ctx->saved_data["ignore_index"].toInt()),
            at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor row_max(const at::Tensor& logits_CV) {
  require_logits("row_max", logits_CV);
  if (!logits_CV.is_cpu()) return logits_CV.amax(1);
  const std::int64_t C = logits_CV.size(0), V = logits_CV.size(1), stride = logits_CV.stride(0);
  const at::Tensor max_C = at::empty({C}, logits_CV.options().requires_grad(false));
  by_wide_dtype(logits_CV.scalar_type(), [&]<class W>(W) {
    const W* const logits = logits_CV.const_data_ptr<W>();
    W* const max = max_C.mutable_data_ptr<W>();
    over_rows(C, V, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) max[c] = max_of_row(logits + c * stride, V);
    });
  });
  return max_C;
}

at::Tensor exp_sums_(const at::Tensor& logits_CV, const at::Tensor& max_C, const at::Tensor& targets_C,
                     std::int64_t first, bool with_plain_sums) {
  require_logits("exp_sums_", logits_CV);
  const std::int64_t C = logits_CV.size(0), V = logits_CV.size(1), stride = logits_CV.stride(0);
  require_like("exp_sums_", "max", max_C, {C}, logits_CV.scalar_type(), logits_CV.device());
  require_like("exp_sums_", "targets", targets_C, {C}, at::kLong, logits_CV.device());
  const at::Tensor sums_3C = at::zeros({3, C}, logits_CV.options().requires_grad(false));
  if (!logits_CV.is_cpu()) {
    logits_CV.sub_(max_C.unsqueeze(1));
    const auto [here_C, column_C1] = target_columns(targets_C, first, V);
    sums_3C[1].copy_(at::where(here_C, logits_CV.gather(1, column_C1).squeeze(1), sums_3C[1]));
    if (with_plain_sums) sums_3C[2].copy_(logits_CV.sum(1));
    logits_CV.exp_();
    sums_3C[0].copy_(logits_CV.sum(1));
    return sums_3C;
  }
  const std::int64_t* const targets = targets_C.const_data_ptr<std::int64_t>();
  by_wide_dtype(logits_CV.scalar_type(), [&]<class W>(W) {
    W *const logits = logits_CV.mutable_data_ptr<W>(), *const sums = sums_3C.mutable_data_ptr<W>();
    const W* const max = max_C.const_data_ptr<W>();
    over_rows(C, V, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) {
        W* const row = logits + c * stride;
        const std::int64_t column = targets[c] - first;
        if (column >= 0 && column < V) sums[C + c] = row[column] - max[c];
        const Sums<W> of = exps_of_row<true, W>(row, max[c], row, V);
        sums[c] = of.exps;
        if (with_plain_sums) sums[2 * C + c] = of.differences;
      }
    });
  });
  return sums_3C;
}

void logit_grads_(const at::Tensor& exps_CV, const at::Tensor& scale_C, const at::Tensor& targets_C, std::int64_t first,
                  const at::Tensor& on_target_C, const at::Tensor& everywhere_C) {
  require_logits("logit_grads_", exps_CV);
  const std::int64_t C = exps_CV.size(0), V = exps_CV.size(1), stride = exps_CV.stride(0);
  const at::ScalarType dtype = exps_CV.scalar_type();
  require_like("logit_grads_", "scale", scale_C, {C}, dtype, exps_CV.device());
  require_like("logit_grads_", "targets", targets_C, {C}, at::kLong, exps_CV.device());
  require_like("logit_grads_", "on_target", on_target_C, {C}, dtype, exps_CV.device());
  if (everywhere_C.defined()) require_like("logit_grads_", "everywhere", everywhere_C, {C}, dtype, exps_CV.device());
  if (!exps_CV.is_cpu()) {
    exps_CV.mul_(scale_C.unsqueeze(1));
    if (everywhere_C.defined()) exps_CV.sub_(everywhere_C.unsqueeze(1));
    const auto [here_C, column_C1] = target_columns(targets_C, first, V);
    exps_CV.scatter_add_(1, column_C1, at::where(here_C, -on_target_C, at::zeros_like(on_target_C)).unsqueeze(1));
    return;
  }
  const std::int64_t* const targets = targets_C.const_data_ptr<std::int64_t>();
  by_wide_dtype(dtype, [&]<class W>(W) {
    W* const exps = exps_CV.mutable_data_ptr<W>();
    const W *const scale = scale_C.const_data_ptr<W>(), *const on_target = on_target_C.const_data_ptr<W>(),
                   *const everywhere = everywhere_C.defined() ? everywhere_C.const_data_ptr<W>() : nullptr;
    over_rows(C, V, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) {
        W* const row = exps + c * stride;
        grads_of_row(row, scale[c], everywhere == nullptr ? W{0} : everywhere[c], V);
        const std::int64_t column = targets[c] - first;
        if (column >= 0 && column < V) row[column] -= on_target[c];
      }
    });
  });
}

at::Tensor cross_entropy(const at::Tensor& logits_TV, const at::Tensor& targets_T, std::int64_t ignore_index) {
  require_dtype("cross_entropy", logits_TV);
  require(logits_TV.dim() == 2 && logits_TV.size(1) > 0, "cross_entropy: logits of sizes ", logits_TV.sizes(),
          ": must be [T, V] with a V of 1 or more");
  require_contiguous("cross_entropy", "logits", logits_TV);
  require_like("cross_entropy", "targets", targets_T, {logits_TV.size(0)}, at::kLong, logits_TV.device());
  if (wants_grad(logits_TV)) return CrossEntropy::apply(logits_TV, targets_T, ignore_index);
  return losses_of(logits_TV, targets_T, ignore_index).losses_T;
}

}  // namespace trireme::kernels
