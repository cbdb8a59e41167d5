// A torch::nn::Module of one's own, trained by all ranks with ZeRO: each has a part of the batch and of the optimizer's
// states. The losses do not depend on the number of ranks.
//   trireme launch -n 4 -- ./own_module
#include <iostream>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "trireme/parallel/zero/zero.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"
#include "trireme/runtime/rank/rank_main.hpp"

struct Net : torch::nn::Module {
  Net() { torch::nn::Module::to(at::kDouble); }
  at::Tensor forward(const at::Tensor& x) { return last->forward(first->forward(x).tanh()); }

  torch::nn::Linear first = register_module("first", torch::nn::Linear(2, 32));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(32, 1));
};

int main(int argc, char** argv) {
  using namespace trireme;
  const RankMain how{.words = {argv, argv + argc}, .variables = process_variables()};
  return rank_main(how, [&](const Environment& env) {
    const ParallelContext context({.data_parallel_size = env.world_size}, env, how.variables);
    Group& dp = context.dp_pg();

    at::manual_seed(1);  // the same initial weights on every rank
    Net net;
    net.to(context.device());
    Zero zero(params_of(net), {}, context.mesh(), {.stage = 1, .accumulate = at::kDouble, .reduce = at::kDouble},
              {.optimizer = {.weight_decay = 0}, .master = at::kDouble, .states = at::kDouble});

    constexpr std::int64_t kBatch = 64;
    for (int step = 1; step <= 200; ++step) {
      const at::Tensor all = at::rand({kBatch, 2}, at::kDouble).to(context.device());  // drawn alike on every rank
      const at::Tensor x = all.tensor_split(dp.size())[static_cast<std::size_t>(dp.rank())];
      const at::Tensor y = (x.select(1, 0) * x.select(1, 1)).unsqueeze(1);

      zero.chunk().begin_microbatch(/*last=*/true);
      // Gradients are summed over the ranks: divide by the size of the whole batch, not of this rank's part.
      const at::Tensor loss = (net.forward(x) - y).square().sum() / kBatch;
      loss.backward();
      zero.chunk().end_microbatch();

      zero.finish_gradients();
      context.mesh().end_step();  // throws if the ranks did not make the same calls
      zero.update({.lr = 1e-2, .max_norm = 1}).settle();
      zero.finish_gathers();

      const at::Tensor total = dp.all_reduce(loss.detach()).wait();
      if (step % 100 == 0 && context.rank() == 0)
        std::cout << "step " << step << ": loss " << total.item<double>() << "\n";
    }
  });
}
