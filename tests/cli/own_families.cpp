// The program with families as users may write them. `noisy-llama` draws from libtorch's generators, whose states
// belong to a checkpoint: random_state_test.py. The others make mistakes on several ranks: verify_test.py.
#include <ATen/ops/randn_like.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <trireme/trireme.hpp>

using namespace trireme;

namespace {

class NoisyLayer final : public DecoderLayer {
 public:
  NoisyLayer(const ModelConfig& m, const Parallel& parallel)
      : up_(std::make_shared<ColumnLinear>(m.hidden_size, m.intermediate_size, parallel)),
        down_(std::make_shared<RowLinear>(m.intermediate_size, m.hidden_size, parallel,
                                          RowOptions{.fill = Fill::residual_weight})) {
    register_module("up", up_), register_module("down", down_);
  }
  at::Tensor forward(const at::Tensor& x, const TokenFacts& /*tokens*/) override {
    return x + down_->forward(at::relu(up_->forward(x))) + 0.1 * at::randn_like(x);
  }

 private:
  std::shared_ptr<ColumnLinear> up_;
  std::shared_ptr<RowLinear> down_;
};

enum class Mistake { none, lost_sum, lost_partial };

/// W_down relu(W_up norm(x))
class WrongMlp final : public MlpLayer {
 public:
  WrongMlp(const ModelConfig& m, const Parallel& parallel, Mistake mistake)
      : contributes_(mistake != Mistake::lost_sum || parallel.tp.rank() == 0),
        // With sequence parallelism a rank sees only its tokens: its gradient of the norm's weight is a part of a sum.
        norm_(std::make_shared<RmsNorm>(m.hidden_size, m.norm_eps, parallel,
                                        mistake == Mistake::lost_partial ? AxisSet() : parallel.partial_between())),
        up_(std::make_shared<ColumnLinear>(m.hidden_size, m.intermediate_size, parallel)),
        down_(std::make_shared<RowLinear>(m.intermediate_size, m.hidden_size, parallel,
                                          RowOptions{.fill = Fill::residual_weight})) {
    register_module("norm", norm_), register_module("up", up_), register_module("down", down_);
  }
  at::Tensor forward(const at::Tensor& x, const ForwardContext& /*context*/, const MaybeRebuild& /*rebuild*/,
                     bool /*rebuild_activation*/) override {
    const at::Tensor hidden = at::relu(up_->forward(norm_->forward(x)));
    return down_->forward(contributes_ ? hidden : 0 * hidden);
  }

 private:
  const bool contributes_;
  std::shared_ptr<RmsNorm> norm_;
  std::shared_ptr<ColumnLinear> up_;
  std::shared_ptr<RowLinear> down_;
};

/// `shifts`: ranks of tp other than the first take the values of the head next to theirs.
class WrongAttention final : public Attention {
 public:
  WrongAttention(const ModelConfig& m, const Parallel& parallel, bool shifts)
      : heads_(m.num_attention_heads / parallel.tp.size()),
        head_dim_(m.head_dim),
        shifts_(shifts && parallel.tp.rank() > 0) {
    const std::int64_t width = m.num_attention_heads * m.head_dim;
    q_ = register_module("q", std::make_shared<ColumnLinear>(m.hidden_size, width, parallel));
    k_ = register_module("k", std::make_shared<ColumnLinear>(m.hidden_size, width, parallel));
    v_ = register_module("v", std::make_shared<ColumnLinear>(m.hidden_size, width, parallel));
    out_ = register_module(
        "out", std::make_shared<RowLinear>(width, m.hidden_size, parallel, RowOptions{.fill = Fill::residual_weight}));
  }
  at::Tensor forward(const at::Tensor& x, const AttentionFacts& /*facts*/, const ForwardContext& context,
                     const MaybeRebuild& /*rebuild*/) override {
    const auto heads_bhsd = [&](const at::Tensor& y) {
      return y.view({context.batch, context.length, heads_, head_dim_}).transpose(1, 2);
    };
    const at::Tensor v_bhsd = heads_bhsd(v_->forward(x));
    const at::Tensor out_bhsd = at::scaled_dot_product_attention(heads_bhsd(q_->forward(x)), heads_bhsd(k_->forward(x)),
                                                                 shifts_ ? v_bhsd.roll(1, 1) : v_bhsd,
                                                                 /*attn_mask=*/{}, /*dropout_p=*/0, /*is_causal=*/true);
    return out_->forward(out_bhsd.transpose(1, 2).reshape({context.tokens(), heads_ * head_dim_}));
  }

 private:
  const std::int64_t heads_, head_dim_;
  const bool shifts_;
  std::shared_ptr<ColumnLinear> q_, k_, v_;
  std::shared_ptr<RowLinear> out_;
};

/// In layer 1.
ModelFamily with_wrong_mlp(const std::string& name, Mistake mistake) {
  return {.name = name, .mlp = [mistake](const ModelConfig& m, const Parallel& parallel, std::int64_t layer) {
            return std::make_shared<WrongMlp>(m, parallel, layer == 1 ? mistake : Mistake::none);
          }};
}

}  // namespace

int main(int argc, char** argv) {
  register_family({.name = "noisy-llama",
                   .like = "llama",
                   .layer = [](const ModelConfig& model, const Parallel& parallel, std::int64_t) {
                     return std::make_shared<NoisyLayer>(model, parallel);
                   }});
  register_family(with_wrong_mlp("lost-sum", Mistake::lost_sum));
  register_family(with_wrong_mlp("lost-partial", Mistake::lost_partial));
  register_family(
      {.name = "shifted-values", .attention = [](const ModelConfig& m, const Parallel& parallel, std::int64_t layer) {
         return std::make_shared<WrongAttention>(m, parallel, /*shifts=*/layer == 2);
       }});
  return run_program(argc, argv);
}
