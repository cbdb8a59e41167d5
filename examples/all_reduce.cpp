// Ranks that sum their numbers. Start it with `trireme launch -n 4 -- ./all_reduce`, torchrun --no-python, mpirun,
// srun, in Kubernetes, or alone: it reads its environment.
#include <iostream>

#include <ATen/ATen.h>

#include "trireme/comm/differentiable.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"
#include "trireme/runtime/rank/rank_main.hpp"

int main(int argc, char** argv) {
  using namespace trireme;
  const RankMain how{.words = {argv, argv + argc}, .variables = process_variables()};
  return rank_main(how, [&](const Environment& env) {
    const ParallelContext context({.data_parallel_size = env.world_size}, env, how.variables);
    Group& dp = context.dp_pg();

    // A pending collective is an object: it owns its tensors until it is waited for.
    Pending sum = dp.all_reduce(at::full({3}, context.rank() + 1.0));
    const at::Tensor total = std::move(sum).wait();

    // Differentiable: y = the sum over ranks, dx = dy.
    const at::Tensor x = at::ones({3}).requires_grad_();
    differentiable::all_reduce(x, dp).sum().backward();

    context.mesh().end_step();  // throws if the ranks did not make the same calls
    if (context.rank() == 0)
      std::cout << "sum " << total[0].item<double>() << ", gradient " << x.grad()[0].item<double>() << "\n";
  });
}
