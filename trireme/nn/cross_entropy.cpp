#include "trireme/nn/cross_entropy.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/ops/mul.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/differentiable.hpp"
#include "trireme/kernels/cross_entropy.hpp"
#include "trireme/kernels/dtype.hpp"
#include "trireme/kernels/first_order.hpp"
#include "trireme/kernels/gradient_place.hpp"
#include "trireme/kernels/matmul.hpp"
#include "trireme/nn/embedding.hpp"
#include "trireme/nn/parallel_matmul.hpp"

namespace trireme {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct Head {
  const at::Tensor weight_vD;  // without the rows that mean nothing
  Range own;                   // entries of this rank
  int64_t entries;
  Group& tp;
  CrossEntropyOptions options;
};

struct TileLoss {
  at::Tensor sum;           // of the losses of its tokens
  at::Tensor dlogits_Cv{};  // where dx is asked for and this rank has entries
};

/// One tile of tokens. dx_CD is written where it is defined.
TileLoss tile_loss(const at::Tensor& x_CD, const at::Tensor& targets_C, const Head& head, at::Tensor dx_CD) {
  const bool wants_grads = dx_CD.defined();
  const auto type = kernels::wide_dtype(x_CD.scalar_type());
  at::Tensor logits_Cv = kernels::matmul_nt(x_CD, head.weight_vD).to(type);
  const double smoothing = head.options.label_smoothing;

  // A rank may have no entry at all, where there are fewer than ranks: it still talks.
  const bool some = head.own.size() > 0;
  const int64_t tokens = x_CD.size(0);
  const at::Tensor max_C =
      head.tp
          .all_reduce_(some ? kernels::row_max(logits_Cv)
                            : at::full({tokens}, -std::numeric_limits<double>::infinity(), logits_Cv.options()),
                       Reduce::max)
          .wait();
  const at::Tensor sums_3C =
      head.tp
          .all_reduce_(some ? kernels::exp_sums_(logits_Cv, max_C, targets_C, head.own.begin, smoothing > 0)
                            : at::zeros({3, tokens}, logits_Cv.options()))
          .wait();
  // lse is of logits minus their maximum, as target and total are: the maximum cancels, but not in the z-loss.
  const at::Tensor sum_exp_C = sums_3C[0], target_C = sums_3C[1], total_C = sums_3C[2];
  const at::Tensor counts_C = targets_C.ne(head.options.ignore_index).to(type);
  const at::Tensor lse_C = sum_exp_C.log();
  const at::Tensor whole_lse_C = lse_C + max_C;
  at::Tensor loss_C = lse_C - (1 - smoothing) * target_C - (smoothing / static_cast<double>(head.entries)) * total_C;
  if (head.options.z_loss > 0) loss_C = loss_C + head.options.z_loss * whole_lse_C.square();

  TileLoss out{.sum = (loss_C * counts_C).sum()};
  if (wants_grads && !some) dx_CD.zero_();
  if (wants_grads && some) {
    // d loss / d logit = p (1 + 2 z lse) - smoothing / V - (1 - smoothing) [is the target], and 0 for ignored tokens.
    const at::Tensor scale_C = counts_C / sum_exp_C * (1 + 2 * head.options.z_loss * whole_lse_C);
    kernels::logit_grads_(logits_Cv, scale_C, targets_C, head.own.begin, counts_C * (1 - smoothing),
                          counts_C * (smoothing / static_cast<double>(head.entries)));
    out.dlogits_Cv = logits_Cv.to(x_CD.scalar_type());
    dx_CD.copy_(kernels::matmul_nn(out.dlogits_Cv, head.weight_vD));
  }
  return out;
}

/// The sum of the losses of all tokens. Where the gradients are defined, dx_TD is written, dweight_vD added to.
at::Tensor loss_of(const at::Tensor& x_TD, const at::Tensor& targets_T, const Head& head, const at::Tensor& dx_TD,
                   const at::Tensor& dweight_vD) {
  at::Tensor sum = at::zeros({}, x_TD.options().dtype(kernels::wide_dtype(x_TD.scalar_type())));
  for (int64_t begin = 0; begin < x_TD.size(0); begin += head.options.tile_tokens) {
    const int64_t tokens = std::min(head.options.tile_tokens, x_TD.size(0) - begin);
    const at::Tensor x_CD = x_TD.narrow(0, begin, tokens);
    const TileLoss tile = tile_loss(x_CD, targets_T.narrow(0, begin, tokens), head,
                                    dx_TD.defined() ? dx_TD.narrow(0, begin, tokens) : at::Tensor());
    sum += tile.sum;
    if (tile.dlogits_Cv.defined()) kernels::add_matmul_tn_(dweight_vD, tile.dlogits_Cv, x_CD);
  }
  return sum;
}

/// Whether the logits' gradients are kept for backward, which then makes dW of them, rather than dW: where they are
/// smaller. Not of bf16 and f16, whose dW is made in fp32 and scaled before it is rounded.
bool keeps_dlogits(const at::Tensor& x_TD, const Head& head) {
  return head.own.size() > 0 && x_TD.size(0) > 0 && x_TD.size(0) <= std::min(head.options.tile_tokens, x_TD.size(1)) &&
         kernels::wide_dtype(x_TD.scalar_type()) == x_TD.scalar_type();
}

struct LossOfHead : torch::autograd::Function<LossOfHead> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_TD, const at::Tensor& weight_vD,
                            const at::Tensor& targets_T, const Head& head) {
    ctx->saved_data["entries"] = head.own.size();
    const at::Tensor dx_TD = at::empty_like(x_TD);
    if (keeps_dlogits(x_TD, head)) {
      const TileLoss all = tile_loss(x_TD, targets_T, head, dx_TD);
      ctx->save_for_backward({weight_vD, dx_TD, all.dlogits_Cv, x_TD});
      return all.sum;
    }
    // dW of a tile is added to that of the tiles before: in the accumulate type, so that bf16 does not lose it.
    const at::Tensor dweight_vD =
        at::zeros({head.own.size(), weight_vD.size(1)},
                  weight_vD.options().dtype(kernels::wide_dtype(weight_vD.scalar_type())).requires_grad(false));
    const at::Tensor loss = loss_of(x_TD, targets_T, head, dx_TD, dweight_vD);
    ctx->save_for_backward({weight_vD, dx_TD, dweight_vD});
    return loss;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    kernels::require_first_order("sharded_cross_entropy");
    const tensor_list kept = ctx->get_saved_variables();
    const at::Tensor &scale = grads[0], &weight_vD = kept[0], &dx_TD = kept[1];
    at::Tensor dweight_vD;
    if (ctx->needs_input_grad(1)) {
      const std::int64_t entries = ctx->saved_data["entries"].toInt();
      dweight_vD = kernels::write_gradient(weight_vD, [&](const at::Tensor& value_vD, bool is_empty) {
        at::Tensor own_vD = value_vD.narrow(0, 0, entries);
        if (is_empty) value_vD.narrow(0, entries, value_vD.size(0) - entries).zero_();
        if (kept.size() == 4) {
          const at::Tensor &dlogits_Tv = kept[2], x_TD = kept[3] * scale;
          is_empty ? kernels::matmul_tn_out(own_vD, dlogits_Tv, x_TD)
                   : kernels::add_matmul_tn_(own_vD, dlogits_Tv, x_TD);
        } else if (is_empty) {
          at::mul_out(own_vD, kept[2], scale);
        } else {
          own_vD.add_(kept[2] * scale);
        }
      });
    }
    // Rounded after the scale: the sum of a whole batch may be beyond f16's largest number.
    return {(dx_TD * scale).to(dx_TD.scalar_type()), dweight_vD, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

LossSum sharded_cross_entropy(const at::Tensor& x, const at::Tensor& weight_vD, const at::Tensor& targets_T,
                              int64_t entries, TensorParallel tp, const CrossEntropyOptions& options) {
  require<ConfigError>(options.tile_tokens > 0, "cross entropy: tile_tokens = ", options.tile_tokens,
                       ": must be at least 1");
  const at::Tensor x_TD = tp.gather(x);
  require(targets_T.dim() == 1 && targets_T.size(0) == x_TD.size(0), "cross entropy: ", targets_T.sizes(),
          " targets for ", x_TD.size(0), " tokens");
  check_entries("target", targets_T, entries, options.ignore_index);
  const Range own = vocabulary_range(entries, tp.group);
  const Head head{weight_vD.detach().narrow(0, 0, own.size()), own, entries, tp.group, options};
  const bool wants_grads = at::GradMode::is_enabled() && (x_TD.requires_grad() || weight_vD.requires_grad());
  const at::Tensor loss =
      wants_grads ? LossOfHead::apply(x_TD, weight_vD, targets_T, head) : loss_of(x_TD, targets_T, head, {}, {});
  return {loss, targets_T.ne(options.ignore_index).sum()};
}

namespace {

/// With the columns that mean nothing.
at::Tensor padded_logits(const at::Tensor& x, const at::Tensor& weight_vD, TensorParallel tp) {
  return parallel_matmul(x, weight_vD, {}, input_between(tp), tp.group);
}

}  // namespace

at::Tensor sharded_logits(const at::Tensor& x, const at::Tensor& weight_vD, int64_t entries, TensorParallel tp) {
  return padded_logits(x, weight_vD, tp).narrow(1, 0, vocabulary_range(entries, tp.group).size());
}

at::Tensor full_logits(const at::Tensor& x, const at::Tensor& weight_vD, int64_t entries, TensorParallel tp) {
  return differentiable::gather_replicated(padded_logits(x, weight_vD, tp), 1, tp.group).narrow(1, 0, entries);
}

}  // namespace trireme
