#pragma once
// A mixture of experts, with the experts over ep and each expert's hidden features over the experts' tp.
#include <memory>

#include "trireme/parallel/expert/router.hpp"
#include "trireme/parallel/tensor/mlp.hpp"

namespace trireme {

// T tokens of this rank in the layer, D features, E experts of which this rank has e, F hidden, f of them on this rank
/// y = sum over a token's experts of weight x W_down (silu(W_gate x) * W_up x), without experts that are full.
///   forward    tokens are sorted by expert and sent to the ranks of ep that have them (all_to_all of counts, then of
///              rows), each expert multiplies its rows, and the results return
///   backward   the same exchange in reverse; gradients of expert weights are summed over edp
/// With a capacity, a GPU need not know how many tokens an expert has: each rank sends as many rows to every expert as
/// it may have, zeros among them, and the host never waits for a count.
/// With a shared expert, y also has the MLP that every token visits.
/// An expert without a token takes part with no rows, and has a gradient of zero. If the experts' tp is tp itself, all
/// its ranks have the same tokens, and their results are summed; if it is smaller, the tokens are split over tp first.
class ExpertMlp final : public MlpLayer {
 public:
  /// The mesh of `parallel` must have a view for experts. `shared_hidden`: of the shared expert; 0: there is none.
  ExpertMlp(const RouterOptions& router, std::int64_t hidden, Parallel parallel, std::int64_t shared_hidden = 0);
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context, const MaybeRebuild& rebuild = {},
                     bool rebuild_activation = false) override;
  const std::shared_ptr<Router>& router() const { return router_; }
  /// With a capacity: exchanges rows without counts on a CPU, too.
  void exchange_without_counts() { without_counts_ = true; }

 private:
  at::Tensor routed(const at::Tensor& x, const ForwardContext& context);
  /// The tokens that this rank routes, of those in `context`.
  RoutedTokens routed_tokens(const ForwardContext& context) const;
  at::Tensor mixture(const at::Tensor& x_TD, const ForwardContext& context);
  at::Tensor on_one_device(const at::Tensor& x_TD, const Routing& routing) const;
  at::Tensor exchanged(const at::Tensor& x_TD, const Routing& routing);
  at::Tensor exchanged_without_counts(const at::Tensor& x_TD, const Routing& routing, const RoutedTokens& tokens);
  at::Tensor experts(const at::Tensor& rows_RD, const std::vector<std::int64_t>& rows_of_expert) const;

  const Parallel parallel_;
  const std::int64_t experts_;
  Group& etp_;
  bool without_counts_ = false;
  const bool splits_tokens_;  // over tp, because the experts' tp is smaller and the layer's input is not split
  std::shared_ptr<Router> router_;
  std::shared_ptr<GatedMlp> shared_;  // may be null
  at::Tensor gate_up_e2fD_, down_eDf_;
};

}  // namespace trireme
