// A module of one's own with sharded layers inside: the first is split by outputs, the second by inputs, so one sum
// over the ranks is enough in each direction. The losses do not depend on the number of ranks.
//   ./tensor_parallel_mlp -n 2
#include <iostream>

#include <torch/nn.h>
#include <torch/optim/adam.h>
#include <trireme/trireme.hpp>

using namespace trireme;

struct Mlp : torch::nn::Module {
  Mlp(std::int64_t in, std::int64_t hidden, std::int64_t out, Mesh& mesh)
      : up(register_module("up",
                           std::make_shared<ColumnLinear>(in, hidden, Parallel(mesh), ColumnOptions{.bias = true}))),
        down(register_module("down",
                             std::make_shared<RowLinear>(hidden, out, Parallel(mesh), RowOptions{.bias = true}))) {}
  at::Tensor forward(const at::Tensor& x) { return down->forward(up->forward(x).relu()); }
  std::shared_ptr<ColumnLinear> up;  // hidden / ranks rows of its weight
  std::shared_ptr<RowLinear> down;   // hidden / ranks columns
};

int main(int argc, char** argv) {
  const auto run = init(argc, argv, {.sizes = {.tensor_parallel_size = 0, .data_parallel_size = 1}});  // all ranks
  Mlp net(8, 64, 2, run->mesh());
  // Every element of a weight is a function of (seed, name, index), for any number of ranks.
  init_parameters(net, run->mesh(), {.seed = 1, .scheme = InitScheme::plain});
  net.to(run->device());
  torch::optim::Adam optimizer(net.parameters(), torch::optim::AdamOptions(1e-2));

  at::manual_seed(0);  // all ranks see the same samples
  for (int step = 1; step <= 100; ++step) {
    const at::Tensor x = at::randn({32, 8}).to(run->device());
    const at::Tensor y = at::stack({x.sum(1), x.prod(1)}, 1);
    optimizer.zero_grad();
    const at::Tensor loss = at::mse_loss(net.forward(x), y);
    loss.backward();
    optimizer.step();
    if (step % 50 == 0 && run->rank() == 0)
      std::cout << "step " << step << ": loss " << loss.item<double>() << std::endl;
  }
}
