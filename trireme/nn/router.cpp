#include "trireme/nn/router.hpp"

#include <cmath>

#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/dtype.hpp"
#include "trireme/kernels/matmul.hpp"
#include "trireme/nn/attached_loss.hpp"

namespace trireme {

Router::Router(const RouterOptions& options, Parallel parallel, int copies)
    : options_(options), copies_(copies), sample_group_(parallel.params.mesh().group({Axis::cp, Axis::tp})) {
  require<ConfigError>(options.top_k >= 1 && options.top_k <= options.experts,
                       "router: num_experts_per_tok = ", options.top_k, " of ", options.experts,
                       " experts: must be from 1 to ", options.experts);
  const Grid& grid = parallel.params.mesh().grid();
  for (int i = 0; i < sample_group_.size(); ++i)
    if (grid.coord(sample_group_.world_ranks()[static_cast<std::size_t>(i)], Axis::tp) % copies == 0)
      first_copies_.push_back(i);
  // The ranks of tp compute different parts of the experts' outputs, or have different tokens.
  weight_ED = declare(
      "weight",
      {.shape = {options.experts, options.features}, .partial = parallel.tp.size() > 1 ? AxisSet(Axis::tp) : AxisSet()},
      parallel);
}

Routing Router::forward(const at::Tensor& x_TD, const RoutedTokens& tokens, const ForwardContext& context) {
  const at::Tensor logits_TE = kernels::linear(x_TD, weight_ED).to(kernels::wide_dtype(x_TD.scalar_type()));
  const at::Tensor scores_TE =
      options_.scores == RouterScores::softmax ? at::softmax(logits_TE, 1) : logits_TE.sigmoid();
  auto [weights_Tk, experts_Tk] = at::topk(scores_TE, options_.top_k, 1);
  if (options_.normalised) weights_Tk = weights_Tk / weights_Tk.sum(1, /*keepdim=*/true);
  if (options_.scale != 1) weights_Tk = weights_Tk * options_.scale;
  Routing routing{.experts_Tk = experts_Tk, .weights_Tk = weights_Tk, .keeps_Tk = {}};
  if (options_.capacity_factor > 0) routing.keeps_Tk = within_capacity(experts_Tk, tokens);
  if (context.training && (options_.balance > 0 || options_.z_loss > 0)) {
    const at::Tensor loss = losses(logits_TE, scores_TE, experts_Tk, tokens);
    if (context.auxiliary_loss) context.auxiliary_loss(loss.detach() / copies_);
    if (context.loss_gradient)
      routing.weights_Tk = attach_loss(
          weights_Tk, loss, [gradient = context.loss_gradient, copies = copies_] { return gradient() / copies; });
  }
  return routing;
}

at::Tensor Router::losses(const at::Tensor& logits_TE, const at::Tensor& scores_TE, const at::Tensor& experts_Tk,
                          const RoutedTokens& tokens) const {
  at::Tensor sum = at::zeros({}, logits_TE.options().requires_grad(false));
  if (options_.z_loss > 0) sum = sum + options_.z_loss * at::logsumexp(logits_TE, {1}).square().sum();
  if (options_.balance == 0) return sum;
  const std::int64_t experts = options_.experts;
  const at::Tensor choices = (tokens.samples_T.unsqueeze(1) * experts + experts_Tk).flatten();
  at::Tensor counts_bE = at::bincount(choices, {}, tokens.num_samples * experts);
  if (sample_group_.size() > 1) counts_bE = sample_group_.all_reduce(counts_bE).wait().floor_divide(copies_);
  const double all_choices = static_cast<double>(options_.top_k * tokens.sample_length);
  const at::Tensor load_bE =
      counts_bE.to(scores_TE.scalar_type()).view({tokens.num_samples, experts}) * (experts / all_choices);
  const at::Tensor shares_TE =
      options_.scores == RouterScores::softmax ? scores_TE : scores_TE / scores_TE.sum(1, /*keepdim=*/true);
  return sum + options_.balance * (load_bE.index_select(0, tokens.samples_T) * shares_TE).sum();
}

at::Tensor Router::within_capacity(const at::Tensor& experts_Tk, const RoutedTokens& tokens) const {
  const std::int64_t k = options_.top_k, T = experts_Tk.size(0);
  const auto capacity =
      static_cast<std::int64_t>(std::ceil(options_.capacity_factor * static_cast<double>(k * tokens.sample_length) /
                                          static_cast<double>(options_.experts)));
  // One number per choice: sorted, those of an expert and sample follow one another by position. Of the ranks that
  // route the same tokens, the first counts.
  const at::Tensor groups_Tk = tokens.samples_T.unsqueeze(1) * options_.experts + experts_Tk;
  const at::Tensor places_Tk = tokens.positions_T.unsqueeze(1) * k + at::arange(k, experts_Tk.options()).unsqueeze(0);
  at::Tensor all = (groups_Tk * (tokens.sample_length * k) + places_Tk).flatten();
  const at::Tensor own = all;
  if (sample_group_.size() > 1) {
    const at::Tensor gathered = sample_group_.all_gather(all.unsqueeze(0)).wait();  // [rank, T k]
    all = gathered.index_select(0, at::tensor(first_copies_, at::kLong).to(all.device())).flatten();
  }
  const at::Tensor sorted = std::get<0>(all.sort());
  // The index of a choice among those of its expert and sample.
  const at::Tensor first = groups_Tk.flatten() * (tokens.sample_length * k);
  const at::Tensor index = at::searchsorted(sorted, own) - at::searchsorted(sorted, first);
  return index.lt(capacity).view({T, k});
}

}  // namespace trireme
