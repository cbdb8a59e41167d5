#include "trireme/parallel/tensor/cross_entropy.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include <ATen/ops/mul.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/differentiable.hpp"
#include "trireme/kernels/loss/cross_entropy.hpp"
#include "trireme/kernels/loss/fused_logits.hpp"
#include "trireme/kernels/matmul/gradient_place.hpp"
#include "trireme/kernels/matmul/matmul.hpp"
#include "trireme/kernels/rows/dtype.hpp"
#include "trireme/kernels/rows/first_order.hpp"
#include "trireme/parallel/tensor/embedding.hpp"
#include "trireme/parallel/tensor/parallel_matmul.hpp"

namespace trireme {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct Head {
  const at::Tensor weight_vD;  // with padding rows: matrix products with the entries alone would be slow on a GPU
  Range own;                   // vocabulary range of this rank
  std::int64_t entries;
  Group& tp;
  CrossEntropyOptions options;
};

/// The softmax of one tile of tokens, in terms that do not overflow.
struct TileSums {
  at::Tensor exp_Cv;      // exp(logit - max), and zeros in columns of padding; the logits themselves if fused
  at::Tensor slope_Cv;    // d logit / d product of x and weight; undefined without a cap: 1
  at::Tensor max_C;       // over all ranks
  at::Tensor sum_exp_C;   // over all ranks
  at::Tensor target_C{};  // logit of the target - max
  at::Tensor total_C{};   // sum of logit - max, only with label smoothing
};

/// The columns of this rank's entries. What is computed here leaves the columns of padding as they are: zeros.
at::Tensor without_padding(const at::Tensor& logits_Cv, const Head& head) {
  return logits_Cv.narrow(1, 0, head.own.size());
}

// Note [Fused logits]
// On a GPU the logits of a tile stay as the matrix product wrote them, are read once for the sums, and become gradients
// in place (kernels/loss/fused_logits.hpp). Elsewhere they are exponentials in between, so that each is computed once.

struct TileLogits {
  at::Tensor values_Cv, slope_Cv;  // see TileSums
};

TileLogits tile_logits(const at::Tensor& x_CD, const Head& head) {
  const at::Tensor product_Cv = kernels::matmul_nt(x_CD, head.weight_vD);
  const bool fused = kernels::has_fused_logits(product_Cv);
  TileLogits logits{fused ? product_Cv : product_Cv.to(kernels::wide_dtype(x_CD.scalar_type())), {}};
  if (const double cap = head.options.softcap; cap > 0) {
    const at::Tensor tanh_Cv = logits.values_Cv.div_(cap).tanh_();
    logits.slope_Cv = tanh_Cv.square().neg_().add_(1);
    logits.values_Cv = tanh_Cv.mul_(cap);
  }
  const std::int64_t padding = logits.values_Cv.size(1) - head.own.size();
  if (padding > 0 && !fused) logits.values_Cv.narrow(1, head.own.size(), padding).zero_();
  return logits;
}

/// d loss / d product from d loss / d logits, in place.
const at::Tensor& through_cap(const at::Tensor& dlogits_Cv, const at::Tensor& slope_Cv) {
  if (slope_Cv.defined()) dlogits_Cv.mul_(slope_Cv);
  return dlogits_Cv;
}

TileSums fused_tile_sums(const TileLogits& padded, const at::Tensor& targets_C, const Head& head) {
  const at::Tensor logits_Cv = without_padding(padded.values_Cv, head);
  // Of no columns: a maximum of minus infinity, and sums of 0.
  const at::Tensor stats_4C = kernels::logit_stats(logits_Cv, targets_C, head.own.begin);
  const at::Tensor max_C = head.tp.all_reduce_(stats_4C[0].clone(), Reduce::max).wait();
  const at::Tensor sums_3C =
      head.tp.all_reduce_(kernels::rebased(stats_4C, max_C, targets_C, head.own.begin, head.own.size())).wait();
  return {padded.values_Cv, padded.slope_Cv, max_C, sums_3C[0], sums_3C[1], sums_3C[2]};
}

/// Two small all_reduces over tp.
TileSums tile_sums(const at::Tensor& x_CD, const at::Tensor& targets_C, const Head& head) {
  const TileLogits padded = tile_logits(x_CD, head);
  const at::Tensor logits_Cv = without_padding(padded.values_Cv, head);
  // With fewer entries than ranks, a rank may have none: it still takes part.
  const bool some = head.own.size() > 0;
  const std::int64_t tokens = x_CD.size(0);
  if (kernels::has_fused_logits(logits_Cv)) return fused_tile_sums(padded, targets_C, head);
  const at::Tensor max_C =
      head.tp
          .all_reduce_(some ? kernels::row_max(logits_Cv)
                            : at::full({tokens}, -std::numeric_limits<double>::infinity(), logits_Cv.options()),
                       Reduce::max)
          .wait();
  const bool smooths = head.options.label_smoothing > 0;
  const at::Tensor sums_3C =
      head.tp
          .all_reduce_(some ? kernels::exp_sums_(logits_Cv, max_C, targets_C, head.own.begin, smooths)
                            : at::zeros({3, tokens}, logits_Cv.options()))
          .wait();
  return {padded.values_Cv, padded.slope_Cv, max_C, sums_3C[0], sums_3C[1], sums_3C[2]};
}

at::Tensor counts_of(const at::Tensor& targets_C, const Head& head, at::ScalarType type) {
  return targets_C.ne(head.options.ignore_index).to(type);
}

at::Tensor tile_loss(const TileSums& sums, const at::Tensor& counts_C, const Head& head) {
  const double smoothing = head.options.label_smoothing;
  // lse, target and total are all relative to the maximum, which cancels except in the z-loss.
  const at::Tensor lse_C = sums.sum_exp_C.log();
  at::Tensor loss_C = lse_C - (1 - smoothing) * sums.target_C;
  // Not 0 times a total that a logit of minus infinity has made infinite.
  if (smoothing > 0) loss_C = loss_C - (smoothing / static_cast<double>(head.entries)) * sums.total_C;
  if (head.options.z_loss > 0) loss_C = loss_C + head.options.z_loss * (lse_C + sums.max_C).square();
  return (loss_C * counts_C).sum();
}

/// The gradients of the product of x and weight, overwriting the exponentials: each token's multiplied by its
/// `weights_C` (0 for ignored tokens).
///   d loss / d logit = p (1 + 2 z lse) - smoothing / V - (1 - smoothing) [is the target]
at::Tensor dlogits_of(const TileSums& sums, const at::Tensor& targets_C, const at::Tensor& weights_C, const Head& head,
                      at::ScalarType dtype) {
  const double smoothing = head.options.label_smoothing;
  const at::Tensor whole_lse_C = sums.sum_exp_C.log() + sums.max_C;
  const at::Tensor scale_C = weights_C / sums.sum_exp_C * (1 + 2 * head.options.z_loss * whole_lse_C);
  const at::Tensor on_target_C = weights_C * (1 - smoothing);
  const at::Tensor everywhere_C = weights_C * (smoothing / static_cast<double>(head.entries));
  const at::Tensor own_Cv = without_padding(sums.exp_Cv, head);
  if (kernels::has_fused_logits(own_Cv)) {
    kernels::softmax_grads_(own_Cv, sums.max_C, scale_C, targets_C, head.own.begin, on_target_C, everywhere_C,
                            sums.exp_Cv.size(1) - own_Cv.size(1));
    return through_cap(sums.exp_Cv, sums.slope_Cv).to(dtype);
  }
  kernels::logit_grads_(own_Cv, scale_C, targets_C, head.own.begin, on_target_C, everywhere_C);
  return through_cap(sums.exp_Cv, sums.slope_Cv).to(dtype);
}

struct TileLoss {
  at::Tensor sum;           // of the losses of its tokens
  at::Tensor dlogits_Cv{};  // if dx is needed and this rank has entries
};

/// The same on one rank with fused kernels, without small passes over the tokens in between.
TileLoss fused_tile(const TileLogits& padded, const at::Tensor& targets_C, const Head& head, bool with_gradients) {
  const at::Tensor logits_Cv = without_padding(padded.values_Cv, head);
  const kernels::LossTerms terms = kernels::loss_terms(kernels::logit_stats(logits_Cv, targets_C, 0), targets_C,
                                                       {.ignore_index = head.options.ignore_index,
                                                        .label_smoothing = head.options.label_smoothing,
                                                        .z_loss = head.options.z_loss,
                                                        .entries = head.entries});
  TileLoss out{.sum = terms.losses.sum()};
  if (!with_gradients) return out;
  kernels::softmax_grads_(logits_Cv, terms.max, terms.scale, targets_C, 0, terms.on_target, terms.everywhere,
                          padded.values_Cv.size(1) - logits_Cv.size(1));
  out.dlogits_Cv = through_cap(padded.values_Cv, padded.slope_Cv);
  return out;
}

/// One tile of tokens. dx_CD is written if defined.
TileLoss tile_with_gradients(const at::Tensor& x_CD, const at::Tensor& targets_C, const Head& head, at::Tensor dx_CD) {
  if (head.tp.size() == 1 && kernels::has_fused_logits(x_CD)) {
    TileLoss out = fused_tile(tile_logits(x_CD, head), targets_C, head, dx_CD.defined());
    if (dx_CD.defined()) kernels::matmul_nn_out(dx_CD, out.dlogits_Cv, head.weight_vD);
    return out;
  }
  const TileSums sums = tile_sums(x_CD, targets_C, head);
  const at::Tensor counts_C = counts_of(targets_C, head, sums.max_C.scalar_type());
  TileLoss out{.sum = tile_loss(sums, counts_C, head)};
  if (!dx_CD.defined()) return out;
  if (head.own.size() == 0) {
    dx_CD.zero_();
    return out;
  }
  out.dlogits_Cv = dlogits_of(sums, targets_C, counts_C, head, x_CD.scalar_type());
  kernels::matmul_nn_out(dx_CD, out.dlogits_Cv, head.weight_vD);
  return out;
}

/// Calls f(first token, number of tokens) for each tile.
template <class F>
void for_each_tile(std::int64_t tokens, const Head& head, const F& f) {
  for (std::int64_t begin = 0; begin < tokens; begin += head.options.tile_tokens)
    f(begin, std::min(head.options.tile_tokens, tokens - begin));
}

/// The sum of the losses of all tokens. If defined, dx_TD is written and dweight_vD accumulated into.
at::Tensor loss_of(const at::Tensor& x_TD, const at::Tensor& targets_T, const Head& head, const at::Tensor& dx_TD,
                   const at::Tensor& dweight_vD) {
  at::Tensor sum = at::zeros({}, x_TD.options().dtype(kernels::wide_dtype(x_TD.scalar_type())));
  for_each_tile(x_TD.size(0), head, [&](std::int64_t begin, std::int64_t tokens) {
    const at::Tensor x_CD = x_TD.narrow(0, begin, tokens);
    const TileLoss tile = tile_with_gradients(x_CD, targets_T.narrow(0, begin, tokens), head,
                                              dx_TD.defined() ? dx_TD.narrow(0, begin, tokens) : at::Tensor());
    sum += tile.sum;
    if (tile.dlogits_Cv.defined() && dweight_vD.defined())
      kernels::weight_product_out(dweight_vD, tile.dlogits_Cv, x_CD, /*add=*/true);
  });
  return sum;
}

/// Whether to store dlogits for backward, which then computes dW, instead of dW: if dlogits are smaller. Not for bf16
/// and f16, whose dW is computed in fp32 and scaled before it is rounded.
bool keeps_dlogits(const at::Tensor& x_TD, const Head& head) {
  return head.own.size() > 0 && x_TD.size(0) > 0 && x_TD.size(0) <= std::min(head.options.tile_tokens, x_TD.size(1)) &&
         kernels::wide_dtype(x_TD.scalar_type()) == x_TD.scalar_type();
}

struct LossOfHead : torch::autograd::Function<LossOfHead> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_TD, const at::Tensor& weight_vD,
                            const at::Tensor& targets_T, const Head& head) {
    const at::Tensor dx_TD = at::empty_like(x_TD);
    if (!weight_vD.requires_grad()) {  // frozen
      const at::Tensor loss = loss_of(x_TD, targets_T, head, dx_TD, {});
      ctx->save_for_backward({weight_vD, dx_TD});
      return loss;
    }
    if (keeps_dlogits(x_TD, head)) {
      const TileLoss all = tile_with_gradients(x_TD, targets_T, head, dx_TD);
      ctx->save_for_backward({weight_vD, dx_TD, all.dlogits_Cv, x_TD});
      return all.sum;
    }
    // dW is accumulated over tiles: in the accumulation dtype, since bf16 would lose small contributions.
    const at::Tensor dweight_vD =
        at::zeros(weight_vD.sizes(),
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
      dweight_vD = kernels::write_gradient(weight_vD, [kept, scale](at::Tensor value_vD, bool is_empty) {
        if (kept.size() == 4) {
          const at::Tensor &dlogits_Tv = kept[2], x_TD = kept[3] * scale;
          kernels::weight_product_out(value_vD, dlogits_Tv, x_TD, /*add=*/!is_empty);
        } else if (is_empty) {
          at::mul_out(value_vD, kept[2], scale);
        } else {
          value_vD.add_(kept[2] * scale);
        }
      });
    }
    // Rounded after scaling: the sum over a whole batch may overflow f16.
    return {(dx_TD * scale).to(dx_TD.scalar_type()), dweight_vD, at::Tensor(), at::Tensor()};
  }
};

/// The same with gradients_in_backward: forward stores the sums per token, backward recomputes the logits.
struct LossOfHeadLater : torch::autograd::Function<LossOfHeadLater> {
  struct Kept final : torch::CustomClassHolder {
    Kept(const Head& h, at::Tensor t, at::Tensor m, at::Tensor s)
        : head(h), targets_T(std::move(t)), max_T(std::move(m)), sum_exp_T(std::move(s)) {}
    const Head head;
    const at::Tensor targets_T, max_T, sum_exp_T;
  };

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_TD, const at::Tensor& weight_vD,
                            const at::Tensor& targets_T, const Head& head) {
    const auto options = x_TD.options().dtype(kernels::wide_dtype(x_TD.scalar_type())).requires_grad(false);
    at::Tensor sum = at::zeros({}, options);
    const at::Tensor max_T = at::empty({x_TD.size(0)}, options), sum_exp_T = at::empty({x_TD.size(0)}, options);
    for_each_tile(x_TD.size(0), head, [&](std::int64_t begin, std::int64_t tokens) {
      const at::Tensor targets_C = targets_T.narrow(0, begin, tokens);
      const TileSums sums = tile_sums(x_TD.narrow(0, begin, tokens), targets_C, head);
      sum += tile_loss(sums, counts_of(targets_C, head, sums.max_C.scalar_type()), head);
      max_T.narrow(0, begin, tokens).copy_(sums.max_C);
      sum_exp_T.narrow(0, begin, tokens).copy_(sums.sum_exp_C);
    });
    ctx->saved_data["kept"] = c10::IValue::make_capsule(c10::make_intrusive<Kept>(head, targets_T, max_T, sum_exp_T));
    ctx->save_for_backward({weight_vD, x_TD});
    return sum;
  }

  /// If defined, dx_TD is written and dweight_vD accumulated into.
  static void gradients(const Kept& kept, const at::Tensor& x_TD, const at::Tensor& scale, const at::Tensor& dx_TD,
                        const at::Tensor& dweight_vD) {
    const Head& head = kept.head;
    for_each_tile(x_TD.size(0), head, [&](std::int64_t begin, std::int64_t tokens) {
      const at::Tensor x_CD = x_TD.narrow(0, begin, tokens), targets_C = kept.targets_T.narrow(0, begin, tokens);
      const TileLogits logits = tile_logits(x_CD, head);
      const TileSums sums{.exp_Cv = logits.values_Cv,
                          .slope_Cv = logits.slope_Cv,
                          .max_C = kept.max_T.narrow(0, begin, tokens),
                          .sum_exp_C = kept.sum_exp_T.narrow(0, begin, tokens)};
      if (!kernels::has_fused_logits(sums.exp_Cv))
        kernels::exp_sums_(without_padding(sums.exp_Cv, head), sums.max_C, targets_C, head.own.begin, false);
      const at::Tensor weights_C = counts_of(targets_C, head, sums.max_C.scalar_type()) * scale;
      const at::Tensor dlogits_Cv = dlogits_of(sums, targets_C, weights_C, head, x_CD.scalar_type());
      if (dx_TD.defined()) kernels::matmul_nn_out(dx_TD.narrow(0, begin, tokens), dlogits_Cv, head.weight_vD);
      if (dweight_vD.defined()) kernels::weight_product_out(dweight_vD, dlogits_Cv, x_CD, /*add=*/true);
    });
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    kernels::require_first_order("sharded_cross_entropy");
    const auto capsule = ctx->saved_data["kept"].toCapsule();
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(capsule);
    const tensor_list saved = ctx->get_saved_variables();
    const at::Tensor weight_vD = saved[0], x_TD = saved[1], scale = grads[0];
    const std::int64_t entries = kept->head.own.size();
    const auto dx = std::make_shared<at::Tensor>();
    at::Tensor dweight_vD;
    if (ctx->needs_input_grad(1)) {
      // One pass computes both. In a deferred write `dx` has expired, and only the weight gradient is computed.
      dweight_vD = kernels::write_gradient(
          weight_vD,
          [kept, x_TD, scale, entries, weak = std::weak_ptr(dx)](at::Tensor value_vD, bool is_empty) {
            if (is_empty) value_vD.zero_();
            const std::shared_ptr<at::Tensor> own = weak.lock();
            if (own) *own = at::zeros_like(x_TD);
            if (entries > 0) gradients(*kept, x_TD, scale, own ? *own : at::Tensor(), value_vD);
          },
          /*reads_parameter=*/true);
    }
    if (!dx->defined()) {
      *dx = at::zeros_like(x_TD);
      if (entries > 0) gradients(*kept, x_TD, scale, *dx, {});
    }
    return {*dx, dweight_vD, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

LossSum sharded_cross_entropy(const at::Tensor& x, const at::Tensor& weight_vD, const at::Tensor& targets_T,
                              std::int64_t entries, Parallel parallel, const CrossEntropyOptions& options) {
  require<ConfigError>(options.tile_tokens > 0, "cross entropy: tile_tokens = ", options.tile_tokens,
                       ": must be at least 1");
  const at::Tensor x_TD = parallel.gather(x);
  require(targets_T.dim() == 1 && targets_T.size(0) == x_TD.size(0), "cross entropy: ", targets_T.sizes(),
          " targets for ", x_TD.size(0), " tokens");
  check_entries("target", targets_T, entries, options.ignore_index);
  const Range own = vocabulary_range(entries, parallel.tp);
  const Head head{weight_vD.detach(), own, entries, parallel.tp, options};
  const bool wants_grads = at::GradMode::is_enabled() && (x_TD.requires_grad() || weight_vD.requires_grad());
  // f16: the loss scale, which is known in backward, comes before the rounding, which loses small gradients.
  const bool later = options.gradients_in_backward || x_TD.scalar_type() == at::kHalf;
  const at::Tensor loss = !wants_grads ? loss_of(x_TD, targets_T, head, {}, {})
                          : later      ? LossOfHeadLater::apply(x_TD, weight_vD, targets_T, head)
                                       : LossOfHead::apply(x_TD, weight_vD, targets_T, head);
  return {loss, targets_T.ne(options.ignore_index).sum()};
}

namespace {

/// Including padding columns.
at::Tensor padded_logits(const at::Tensor& x, const at::Tensor& weight_vD, Parallel parallel) {
  return parallel_matmul(x, weight_vD, {}, input_between(parallel), parallel.tp);
}

}  // namespace

at::Tensor softcapped(const at::Tensor& logits, double softcap) {
  return softcap > 0 ? (logits / softcap).tanh() * softcap : logits;
}

at::Tensor sharded_logits(const at::Tensor& x, const at::Tensor& weight_vD, std::int64_t entries, Parallel parallel) {
  return padded_logits(x, weight_vD, parallel).narrow(1, 0, vocabulary_range(entries, parallel.tp).size());
}

at::Tensor full_logits(const at::Tensor& x, const at::Tensor& weight_vD, std::int64_t entries, Parallel parallel) {
  // As many columns on all ranks: the last ones have padding at their end, which is the end of the result.
  const std::int64_t columns = (entries + parallel.tp.size() - 1) / parallel.tp.size();
  const at::Tensor own_Tc = padded_logits(x, weight_vD, parallel).narrow(1, 0, columns).contiguous();
  return differentiable::gather_replicated(own_Tc, 1, parallel.tp).narrow(1, 0, entries);
}

}  // namespace trireme
