#include "trireme/parallel/expert/experts.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/differentiable.hpp"
#include "trireme/kernels/activation/swiglu.hpp"
#include "trireme/kernels/experts/expert_rows.hpp"
#include "trireme/kernels/matmul/grouped_linear.hpp"

namespace trireme {
namespace {

using Counts = std::vector<std::int64_t>;

Counts on_host(const at::Tensor& counts) {
  const at::Tensor host = counts.to(at::kCPU, at::kLong).contiguous();
  const auto* const first = host.const_data_ptr<std::int64_t>();
  return {first, first + host.numel()};
}

/// Sums of `parts` equal runs.
Counts sums_of_runs(const Counts& counts, std::size_t parts) {
  Counts out(parts, 0);
  const std::size_t each = counts.size() / parts;
  for (std::size_t i = 0; i < counts.size(); ++i) out[i / each] += counts[i];
  return out;
}

/// The rows that a rank receives are those from rank 0, sorted by expert, then those from rank 1, ...
struct Arrivals {
  Counts rows_of_expert;                // over all ranks
  std::vector<std::int64_t> by_expert;  // indices of the received rows, sorted by expert, then by rank
};
Arrivals arrivals(const Counts& counts_of_ranks, std::size_t experts) {
  Counts starts(counts_of_ranks.size(), 0);
  std::exclusive_scan(counts_of_ranks.begin(), counts_of_ranks.end(), starts.begin(), std::int64_t{0});
  Arrivals out{.rows_of_expert = Counts(experts, 0), .by_expert = {}};
  for (std::size_t e = 0; e < experts; ++e)
    for (std::size_t i = e; i < counts_of_ranks.size(); i += experts) {
      out.rows_of_expert[e] += counts_of_ranks[i];
      for (std::int64_t row = 0; row < counts_of_ranks[i]; ++row) out.by_expert.push_back(starts[i] + row);
    }
  return out;
}

at::Tensor as_index(const std::vector<std::int64_t>& numbers, at::Device device) {
  return at::tensor(numbers, at::kLong).to(device);
}

/// The index that undoes index_select(0, order).
at::Tensor undoing(const at::Tensor& order) { return at::argsort(order); }

}  // namespace

ExpertMlp::ExpertMlp(const RouterOptions& router, std::int64_t hidden, Parallel parallel, std::int64_t shared_hidden)
    : parallel_(parallel),
      experts_(router.experts),
      etp_(parallel.params.mesh().expert_group(Axis::tp)),
      splits_tokens_(etp_.size() < parallel.tp.size() && !parallel.sequence_parallel) {
  router_ = register_module("router", std::make_shared<Router>(router, parallel, etp_.size()));
  const std::int64_t features = router.features;
  const Cut by_expert{.axis = Axis::ep, .dim = 0};
  gate_up_e2fD_ = declare("expert_gate_up",
                          {.shape = {experts_, 2 * hidden, features},
                           .placement = {.cuts = {by_expert, gate_up(Axis::tp, 1, hidden)}, .view = View::expert}},
                          parallel);
  down_eDf_ = declare("expert_down",
                      {.shape = {experts_, features, hidden},
                       .placement = {.cuts = {by_expert, {.axis = Axis::tp, .dim = 2}}, .view = View::expert},
                       .fill = Fill::residual_weight},
                      parallel);
  if (shared_hidden > 0)
    shared_ = register_module("shared", std::make_shared<GatedMlp>(features, shared_hidden, parallel));
}

RoutedTokens ExpertMlp::routed_tokens(const ForwardContext& context) const {
  const at::Tensor index_T = at::arange(context.tokens(), context.positions_T.options());
  RoutedTokens tokens{.samples_T = index_T.floor_divide(context.length),
                      .positions_T = context.positions_T,
                      .num_samples = context.batch,
                      .sample_length = context.whole_length,
                      .own_length = context.length};
  const std::int64_t tp = parallel_.tp.size(), etp = etp_.size();
  if (etp == tp) return tokens;
  // Those of the ranks of this experts' tp, which are neighbours in tp.
  const std::int64_t count = context.tokens() / tp * etp, first = parallel_.tp.rank() / etp * count;
  tokens.samples_T = tokens.samples_T.narrow(0, first, count);
  tokens.positions_T = tokens.positions_T.narrow(0, first, count);
  return tokens;
}

at::Tensor ExpertMlp::forward(const at::Tensor& x, const ForwardContext& context, const MaybeRebuild& rebuild,
                              bool rebuild_activation) {
  if (!shared_) return routed(x, context);
  // First: on a GPU it is computed while the host waits for the counts of the exchange.
  const at::Tensor y = shared_->forward(x, context, rebuild, rebuild_activation);
  return y + routed(x, context);
}

at::Tensor ExpertMlp::routed(const at::Tensor& x, const ForwardContext& context) {
  // The ranks of the experts' tp need the same tokens; their results are partial sums.
  if (etp_.size() == parallel_.tp.size()) return parallel_.add_up(mixture(parallel_.gather(x), context));
  const at::Tensor own = splits_tokens_ ? differentiable::split_replicated(x, 0, parallel_.tp).contiguous() : x;
  const at::Tensor y =
      differentiable::reduce_scatter(mixture(differentiable::all_gather(own, 0, etp_), context), 0, etp_);
  return splits_tokens_ ? differentiable::gather_replicated(y, 0, parallel_.tp) : y;
}

at::Tensor ExpertMlp::mixture(const at::Tensor& x_TD, const ForwardContext& context) {
  const RoutedTokens tokens = routed_tokens(context);
  const Routing routing = router_->forward(x_TD, tokens, context);
  // A rank with a part of each sample would send as many rows as one with whole samples, most of them empty: there the
  // host waits for the counts.
  const bool has_whole_samples = x_TD.size(0) == tokens.num_samples * tokens.sample_length;
  if (routing.keeps_Tk.defined() && (without_counts_ || x_TD.is_cuda()) && has_whole_samples)
    return exchanged_without_counts(x_TD, routing, tokens);
  if (parallel_.ep.size() == 1 && kernels::takes_rows_on_device(x_TD, gate_up_e2fD_) &&
      kernels::takes_rows_on_device(x_TD, down_eDf_))
    return on_one_device(x_TD, routing);
  return exchanged(x_TD, routing);
}

at::Tensor ExpertMlp::experts(const at::Tensor& rows_RD, const Counts& rows_of_expert) const {
  const at::Tensor gate_up = kernels::grouped_linear(rows_RD, gate_up_e2fD_, rows_of_expert);
  return kernels::grouped_linear(kernels::swiglu(gate_up), down_eDf_, rows_of_expert);
}

at::Tensor ExpertMlp::exchanged(const at::Tensor& x_TD, const Routing& routing) {
  const std::int64_t k = routing.experts_Tk.size(1);
  const at::Tensor all = routing.experts_Tk.flatten();
  at::Tensor order = at::argsort(all, /*stable=*/true);  // of (token, choice) pairs, by expert
  if (routing.keeps_Tk.defined())
    order = order.masked_select(routing.keeps_Tk.flatten().index_select(0, order));  // the others are not sent
  const at::Tensor sorted = all.index_select(0, order);
  const at::Tensor tokens = order.floor_divide(k);

  Group& ep = parallel_.ep;
  const std::int64_t own_experts = experts_ / ep.size();
  const at::Tensor counts = at::bincount(sorted, {}, experts_);
  const at::Tensor arriving = ep.all_to_all(counts).wait();  // [rank, own expert]
  const at::Tensor to_send = x_TD.index_select(0, tokens);
  // The host waits here, once: the sizes of the messages follow from the counts.
  const Counts both = on_host(at::cat({counts, arriving}));
  const Counts send(both.begin(), both.begin() + experts_), receive(both.begin() + experts_, both.end());
  const auto ranks = static_cast<std::size_t>(ep.size());
  const Counts send_rows = sums_of_runs(send, ranks), receive_rows = sums_of_runs(receive, ranks);
  const Arrivals here = arrivals(receive, static_cast<std::size_t>(own_experts));
  const at::Tensor by_expert = as_index(here.by_expert, x_TD.device());

  const at::Tensor sent = differentiable::all_to_all(to_send, ep, send_rows, receive_rows);
  const at::Tensor out = experts(sent.index_select(0, by_expert), here.rows_of_expert);
  const at::Tensor back =
      differentiable::all_to_all(out.index_select(0, undoing(by_expert)), ep, receive_rows, send_rows);

  const at::Tensor weights = routing.weights_Tk.flatten().index_select(0, order).unsqueeze(1);
  const at::Tensor weighted = back.to(weights.scalar_type()) * weights;
  return at::zeros(x_TD.sizes(), weights.options().requires_grad(false))
      .index_add(0, tokens, weighted)
      .to(x_TD.scalar_type());
}

/// All experts are here, and each choice is kept: the number of rows is known, and which expert has which rows is
/// nothing that the host must know.
at::Tensor ExpertMlp::on_one_device(const at::Tensor& x_TD, const Routing& routing) const {
  const auto [sorted, order] = at::sort(routing.experts_Tk.flatten().to(at::kInt), /*stable=*/true, 0, false);
  const at::Tensor ends_E = at::searchsorted(sorted, at::arange(experts_, sorted.options()), /*out_int32=*/true,
                                             /*right=*/true);
  // Where the row of each choice is.
  const at::Tensor place_Tk =
      at::empty_like(order).scatter_(0, order, at::arange(order.numel(), order.options())).view_as(routing.experts_Tk);
  const at::Tensor gate_up = kernels::grouped_linear(kernels::spread_rows(x_TD, place_Tk), gate_up_e2fD_, ends_E);
  const at::Tensor out = kernels::grouped_linear(kernels::swiglu(gate_up), down_eDf_, ends_E);
  return kernels::gather_rows(out, place_Tk, routing.weights_Tk);
}

/// Rows [expert, sample, slot] on both sides. A choice that is not kept goes to a row after the last one, which is not
/// sent and comes back as zeros.
at::Tensor ExpertMlp::exchanged_without_counts(const at::Tensor& x_TD, const Routing& routing,
                                               const RoutedTokens& tokens) {
  Group& ep = parallel_.ep;
  const std::int64_t T = x_TD.size(0), k = routing.experts_Tk.size(1), D = x_TD.size(1), ranks = ep.size();
  const std::int64_t slots = std::min({routing.capacity, T, tokens.own_length});
  const std::int64_t rows_of_expert = tokens.num_samples * slots, rows = experts_ * rows_of_expert;
  const at::Tensor place_Tk =
      (routing.experts_Tk * tokens.num_samples + tokens.samples_T.unsqueeze(1)) * slots + routing.slots_Tk;
  const at::Tensor place = place_Tk.where(routing.keeps_Tk, at::full({}, rows, place_Tk.options())).flatten();
  const at::Tensor chosen = x_TD.unsqueeze(1).expand({T, k, D}).reshape({T * k, D});
  const at::Tensor to_send =
      at::zeros({rows + 1, D}, x_TD.options().requires_grad(false)).index_copy(0, place, chosen).narrow(0, 0, rows);

  const Counts equal(static_cast<std::size_t>(ranks), rows / ranks);
  const std::int64_t own_experts = experts_ / ranks;
  const at::Tensor sent = differentiable::all_to_all(to_send.contiguous(), ep, equal, equal);
  const auto swapped = [&](const at::Tensor& x, std::int64_t outer, std::int64_t inner) {
    return x.view({outer, inner, rows_of_expert, D}).transpose(0, 1).reshape({rows, D});
  };
  const at::Tensor out =
      experts(swapped(sent, ranks, own_experts), Counts(static_cast<std::size_t>(own_experts), ranks * rows_of_expert));
  const at::Tensor back = differentiable::all_to_all(swapped(out, own_experts, ranks).contiguous(), ep, equal, equal);

  const at::Tensor returned =
      at::cat({back, at::zeros({1, D}, back.options().requires_grad(false))}).index_select(0, place).view({T, k, D});
  const at::Tensor weighted = returned.to(routing.weights_Tk.scalar_type()) * routing.weights_Tk.unsqueeze(2);
  return weighted.sum(1).to(x_TD.scalar_type());
}

}  // namespace trireme
