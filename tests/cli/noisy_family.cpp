// The program with a family whose layers draw from libtorch's generators, as modules of users may: the states of the
// generators belong to a checkpoint. See random_state_test.py.
#include <ATen/ops/randn_like.h>
#include <ATen/ops/relu.h>
#include <trireme/trireme.hpp>

using namespace trireme;

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

int main(int argc, char** argv) {
  register_family({.name = "noisy-llama",
                   .like = "llama",
                   .layer = [](const ModelConfig& model, const Parallel& parallel, std::int64_t) {
                     return std::make_shared<NoisyLayer>(model, parallel);
                   }});
  return run_program(argc, argv);
}
