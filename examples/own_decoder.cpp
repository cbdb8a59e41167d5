// A decoder of one's own in the trainer: its layer is written once, with sharded layers, and registered as a family.
// Configs name it; training on any layout, checkpoints, metrics and verify() come with it.
//   ./own_decoder verify examples/own_decoder.toml          compares two ranks with one, in float64
//   ./own_decoder train examples/own_decoder.toml -n 2      trains on two ranks
#include <iostream>
#include <string>
#include <vector>

#include <ATen/ops/relu.h>
#include <trireme/model/grouped_query_attention.hpp>
#include <trireme/trireme.hpp>

using namespace trireme;

/// Attention and MLP side by side on one norm, as in GPT-J and PaLM; the MLP has squared ReLUs.
class ParallelLayer final : public DecoderLayer {
 public:
  ParallelLayer(const ModelConfig& m, const Parallel& parallel)
      : norm_(std::make_shared<RmsNorm>(m.hidden_size, m.norm_eps, parallel, parallel.partial_between())),
        attention_(std::make_shared<GroupedQueryAttention>(attention_options(m), parallel)),
        up_(std::make_shared<ColumnLinear>(m.hidden_size, m.intermediate_size, parallel)),
        down_(std::make_shared<RowLinear>(m.intermediate_size, m.hidden_size, parallel,
                                          RowOptions{.fill = Fill::residual_weight})) {
    register_module("norm", norm_), register_module("attention", attention_);
    register_module("up", up_), register_module("down", down_);
  }
  at::Tensor forward(const at::Tensor& x, const TokenFacts& tokens) override {
    const at::Tensor y = norm_->forward(x);
    const at::Tensor mixed = attention_->forward(y, tokens.attention, tokens.context);
    return x + mixed + down_->forward(at::relu(up_->forward(y)).square());
  }

 private:
  std::shared_ptr<RmsNorm> norm_;
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<ColumnLinear> up_;
  std::shared_ptr<RowLinear> down_;
};

int main(int argc, char** argv) {
  register_family({.name = "parallel-llama",
                   .like = "llama",
                   .layer = [](const ModelConfig& model, const Parallel& parallel, std::int64_t) {
                     return std::make_shared<ParallelLayer>(model, parallel);
                   }});
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() != 2 || words[0] != "verify") return run_program(argc, argv);

  bool passed = true;
  try {
    for (const char* axis : {"tp", "dp", "pp"}) {
      const Config config = read_training_config(words[1], {text("--parallelism.", axis), "2"});
      const VerifyResult result = verify(config);
      std::cout << axis << " = 2\n" << result.str() << "\n";
      passed &= result.passed;
    }
  } catch (const std::exception&) {
    return report_failure(std::current_exception());  // "error: ..." and the exit code for it
  }
  return passed ? 0 : 1;
}
