// A perceptron whose parameters, gradients and optimizer states are sharded over the ranks: each layer exists as a
// whole only while it computes. The losses do not depend on the number of ranks.
//   ./fsdp_mlp -n 4
#include <iostream>

#include <torch/nn.h>
#include <torch/optim/adamw.h>
#include <torch/serialize.h>
#include <trireme/trireme.hpp>

int main(int argc, char** argv) {
  using namespace trireme;
  const auto run = init(argc, argv);
  Group& dp = run->dp_pg();

  at::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(2, 256), torch::nn::GELU(), torch::nn::Linear(256, 256),
                            torch::nn::GELU(), torch::nn::Linear(256, 1));
  auto model = fully_shard(net, dp, {.sharding = Sharding::full_shard, .device = run->device()});
  torch::optim::AdamW optimizer(model.shards(), torch::optim::AdamWOptions(1e-3));

  constexpr std::int64_t kBatch = 64;
  for (int step = 1; step <= 200; ++step) {
    const at::Tensor all = at::rand({kBatch, 2}).to(run->device());  // drawn alike on every rank
    const at::Tensor x = all.tensor_split(dp.size())[static_cast<std::size_t>(dp.rank())];
    const at::Tensor y = (x.select(1, 0) * x.select(1, 1)).unsqueeze(1);
    optimizer.zero_grad();
    const at::Tensor loss = at::mse_loss(model(x), y);
    loss.backward();
    model.clip_grad_norm(1.0);
    optimizer.step();
    const at::Tensor mean = dp.all_reduce(loss.detach().view({1}), Reduce::avg).wait();
    if (step % 100 == 0 && run->rank() == 0)
      std::cout << "step " << step << ": loss " << mean.item<double>() << std::endl;
  }

  // The whole module, as torch::save writes it: all ranks gather, one writes.
  model.with_whole_parameters([&] {
    if (run->rank() == 0) torch::save(net, "fsdp_mlp.pt");
  });
  torch::nn::Sequential again(torch::nn::Linear(2, 256), torch::nn::GELU(), torch::nn::Linear(256, 256),
                              torch::nn::GELU(), torch::nn::Linear(256, 1));
  if (run->rank() == 0) {
    torch::load(again, "fsdp_mlp.pt", at::kCPU);
    std::cout << "0.5 * 0.5 = " << again->forward(at::full({1, 2}, 0.5)).item<double>() << std::endl;
  }
}
