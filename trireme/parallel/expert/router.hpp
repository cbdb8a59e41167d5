#pragma once
// The router of a mixture of experts: which experts a token visits, and the weight of each.
#include <memory>
#include <vector>

#include "trireme/nn/forward_context.hpp"
#include "trireme/nn/layer.hpp"

namespace trireme {

enum class RouterScores { softmax, sigmoid };
/// What a balancing loss is a product of sums over: the tokens of a sample in one layer, or all tokens of a microbatch
/// in all layers (PooledBalance).
enum class BalanceOver { sample, pooled };

struct RouterOptions {
  std::int64_t features = 0, experts = 0;
  std::int64_t top_k = 2;  // experts per token
  RouterScores scores = RouterScores::softmax;
  bool normalised = true;  // the weights of a token's experts add up to `scale`
  double scale = 1;
  /// An expert takes at most this many times the mean of the tokens of a sample: ceil(factor x top_k x tokens /
  /// experts), those with the smallest positions. 0: all.
  double capacity_factor = 0;
  // Auxiliary losses, means over all tokens:
  double balance = 0;  // coefficient of experts x sum over experts of (fraction of the sample's choices) x (score)
  BalanceOver balance_over = BalanceOver::sample;
  double z_loss = 0;  // coefficient of log(sum of exp(logits))^2
  /// A bias is added to the scores when experts are chosen, and to nothing else: update_selection_biases() steers it.
  bool selection_bias = false;
};

/// The tokens of a layer. Those of a sample may be on several ranks.
struct RoutedTokens {
  at::Tensor samples_T;                             // i64: index of each token's sample in the microbatch
  at::Tensor positions_T;                           // i64: in its sample
  std::int64_t num_samples = 0, sample_length = 0;  // over all ranks
  std::int64_t own_length = 0;                      // the most tokens of a sample on one rank
};

struct Routing {
  at::Tensor experts_Tk;  // i64, the best first
  at::Tensor weights_Tk;  // f32, f64 for a model in f64; differentiable
  // With a capacity, else undefined:
  at::Tensor keeps_Tk = {};   // bool: false if the expert is full
  at::Tensor slots_Tk = {};   // i64: the index of a choice among the own ones for its expert and sample, by position
  std::int64_t capacity = 0;  // of an expert, per sample
};

// T tokens, D features, E experts, k = top_k
/// scores = softmax or sigmoid of x W^T, in f32 or f64; a token visits the k experts with the largest. What depends on
/// several tokens, capacity and balance, is defined for a sample, so that it does not change with the layout; for that
/// the choices are summed or gathered over cp and tp. (BalanceOver::pooled changes with the size of a microbatch.)
class Router final : public Layer {
 public:
  /// `copies`: ranks of tp that route the same tokens. Each computes a part of the gradient.
  Router(const RouterOptions& options, Parallel parallel, int copies);
  Routing forward(const at::Tensor& x_TD, const RoutedTokens& tokens, const ForwardContext& context);

  /// The choices of all own tokens since the last call, i64; zeros if there were none. With a selection bias.
  at::Tensor take_choices_E();

  at::Tensor weight_ED;
  at::Tensor selection_bias_E;  // f32, f64 for a model in f64; undefined without one. Not trained by gradients.

 private:
  at::Tensor choose(const at::Tensor& scores_TE) const;
  at::Tensor shares(const at::Tensor& scores_TE) const;
  /// The auxiliary losses, summed over the own tokens.
  at::Tensor losses(const at::Tensor& logits_TE, const at::Tensor& scores_TE, const at::Tensor& experts_Tk,
                    const RoutedTokens& tokens) const;
  void apply_capacity(Routing& routing, const RoutedTokens& tokens) const;

  const RouterOptions options_;
  const int copies_;
  at::Tensor choices_E_;
  Group& sample_group_;                     // cp x tp: the ranks that have tokens of the same samples
  std::vector<std::int64_t> first_copies_;  // of its ranks those that together have every token once
};

/// bias += rate x sign(mean load - load) for the experts of each router, with the load of the step over all ranks
/// (DeepSeek-V3, 2.1.2). Collective over the ranks of a pipeline stage.
void update_selection_biases(const std::vector<std::shared_ptr<Router>>& routers, const Mesh& mesh, double rate);

}  // namespace trireme
