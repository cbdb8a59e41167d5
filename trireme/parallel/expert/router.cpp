#include "trireme/parallel/expert/router.hpp"

#include <cmath>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/matmul/matmul.hpp"
#include "trireme/kernels/rows/dtype.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/parallel/expert/attached_loss.hpp"
#include "trireme/parallel/expert/pooled_balance.hpp"

namespace trireme {
namespace {

/// How often each number below n occurs. On a GPU bincount waits for the largest number.
at::Tensor times_of_each(const at::Tensor& numbers, std::int64_t n) {
  if (!numbers.is_cuda()) return at::bincount(numbers, {}, n);
  return at::zeros({n}, numbers.options()).scatter_add_(0, numbers, at::ones_like(numbers));
}

}  // namespace

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
  if (!options.selection_bias) return;
  const InitScope scope(current_init_options().device(), kernels::wide_dtype(weight_ED.scalar_type()));
  selection_bias_E =
      declare("selection_bias", {.shape = {options.experts}, .fill = Fill::zeros, .set_by_layer = true}, parallel);
  selection_bias_E.set_requires_grad(false);
}

at::Tensor Router::choose(const at::Tensor& scores_TE) const {
  const at::NoGradGuard no_grad;
  const at::Tensor ranked_TE = selection_bias_E.defined() ? scores_TE + selection_bias_E : scores_TE;
  return std::get<1>(at::topk(ranked_TE, options_.top_k, 1));
}

Routing Router::forward(const at::Tensor& x_TD, const RoutedTokens& tokens, const ForwardContext& context) {
  const at::Tensor logits_TE = kernels::linear(x_TD, weight_ED).to(kernels::wide_dtype(x_TD.scalar_type()));
  const at::Tensor scores_TE =
      options_.scores == RouterScores::softmax ? at::softmax(logits_TE, 1) : logits_TE.sigmoid();
  const bool again = context.chosen_experts && context.chosen_experts->defined();
  const at::Tensor experts_Tk = again ? *context.chosen_experts : choose(scores_TE);
  if (context.chosen_experts) *context.chosen_experts = experts_Tk;
  at::Tensor weights_Tk = scores_TE.gather(1, experts_Tk);
  if (options_.normalised) weights_Tk = weights_Tk / weights_Tk.sum(1, /*keepdim=*/true);
  if (options_.scale != 1) weights_Tk = weights_Tk * options_.scale;
  Routing routing{.experts_Tk = experts_Tk, .weights_Tk = weights_Tk};
  if (options_.capacity_factor > 0) apply_capacity(routing, tokens);
  if (!context.training) return routing;
  if (selection_bias_E.defined() && !again) {
    // In place: in a CUDA graph, replays add to it without the host.
    if (!choices_E_.defined()) choices_E_ = at::zeros({options_.experts}, experts_Tk.options());
    choices_E_.add_(times_of_each(experts_Tk.flatten(), options_.experts));
  }
  const double factor = context.auxiliary_factor / copies_;  // each of the copies computes a part of the gradient
  const bool pooled = options_.balance > 0 && options_.balance_over == BalanceOver::pooled;
  if (options_.z_loss > 0 || (options_.balance > 0 && !pooled)) {
    const at::Tensor loss = losses(logits_TE, scores_TE, experts_Tk, tokens);
    if (context.auxiliary_loss && !again) context.auxiliary_loss(loss.detach() / copies_);
    routing.weights_Tk = attach_loss(routing.weights_Tk, loss, [factor, options = loss.options().requires_grad(false)] {
      return at::full({}, factor, options);
    });
  }
  if (pooled) {
    require(context.pooled_balance != nullptr, "a router with a balance over all layers, and nothing to add it to");
    const at::Tensor scores_E = shares(scores_TE).sum(0);
    if (!again) context.pooled_balance->add(times_of_each(experts_Tk.flatten(), options_.experts), scores_E.detach());
    routing.weights_Tk = attach_loss(routing.weights_Tk, scores_E,
                                     [factor, pool = context.pooled_balance, report = context.auxiliary_loss] {
                                       return pool->gradient_E(report) * factor;
                                     });
  }
  return routing;
}

/// Scores that add up to one for each token.
at::Tensor Router::shares(const at::Tensor& scores_TE) const {
  return options_.scores == RouterScores::softmax ? scores_TE : scores_TE / scores_TE.sum(1, /*keepdim=*/true);
}

at::Tensor Router::take_choices_E() {
  require(selection_bias_E.defined(), "the choices of a router without a selection bias are not counted");
  if (!choices_E_.defined()) return at::zeros({options_.experts}, selection_bias_E.options().dtype(at::kLong));
  const at::Tensor taken = choices_E_.clone();
  choices_E_.zero_();
  return taken;
}

at::Tensor Router::losses(const at::Tensor& logits_TE, const at::Tensor& scores_TE, const at::Tensor& experts_Tk,
                          const RoutedTokens& tokens) const {
  at::Tensor sum = at::zeros({}, logits_TE.options().requires_grad(false));
  if (options_.z_loss > 0) sum = sum + options_.z_loss * at::logsumexp(logits_TE, {1}).square().sum();
  if (options_.balance == 0 || options_.balance_over != BalanceOver::sample) return sum;
  const std::int64_t experts = options_.experts;
  const at::Tensor choices = (tokens.samples_T.unsqueeze(1) * experts + experts_Tk).flatten();
  at::Tensor counts_bE = times_of_each(choices, tokens.num_samples * experts);
  if (sample_group_.size() > 1) counts_bE = sample_group_.all_reduce(counts_bE).wait().floor_divide(copies_);
  const double all_choices = static_cast<double>(options_.top_k * tokens.sample_length);
  const at::Tensor load_bE =
      counts_bE.to(scores_TE.scalar_type()).view({tokens.num_samples, experts}) * (experts / all_choices);
  return sum + options_.balance * (load_bE.index_select(0, tokens.samples_T) * shares(scores_TE)).sum();
}

void Router::apply_capacity(Routing& routing, const RoutedTokens& tokens) const {
  const at::Tensor& experts_Tk = routing.experts_Tk;
  const std::int64_t k = options_.top_k, T = experts_Tk.size(0);
  routing.capacity =
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
  // The index of each own choice among all or the own ones of its expert and sample.
  const at::Tensor first = groups_Tk.flatten() * (tokens.sample_length * k);
  const auto index_in = [&](const at::Tensor& choices) {
    const at::Tensor sorted = std::get<0>(choices.sort());
    return (at::searchsorted(sorted, own) - at::searchsorted(sorted, first)).view({T, k});
  };
  const at::Tensor index_Tk = index_in(all);
  routing.keeps_Tk = index_Tk.lt(routing.capacity);
  routing.slots_Tk = sample_group_.size() > 1 ? index_in(own) : index_Tk;
}

void update_selection_biases(const std::vector<std::shared_ptr<Router>>& routers, const Mesh& mesh, double rate) {
  if (routers.empty()) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> choices;
  for (const auto& router : routers) choices.push_back(router->take_choices_E());
  // Ranks of tp that route the same tokens count them all alike: the sign is the same.
  at::Tensor load_RE = mesh.token_group().all_reduce(at::stack(choices)).wait();
  load_RE = mesh.group(Axis::tp).all_reduce(load_RE).wait().to(at::kDouble);
  const at::Tensor signs_RE = (load_RE.mean(1, /*keepdim=*/true) - load_RE).sign();
  for (std::size_t i = 0; i < routers.size(); ++i)
    routers[i]->selection_bias_E.add_(signs_RE[static_cast<std::int64_t>(i)], rate);
}

}  // namespace trireme
