// A user's program with a module of its own, built against an installed trireme, on as many ranks as -n says; and the
// commands of trireme in it, with a family of its own.
#include <iostream>
#include <string_view>

#include <torch/nn.h>
#include <torch/optim/sgd.h>
#include <trireme/trireme.hpp>

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "config") {
    trireme::register_family({.name = "mine", .layer = [](const auto&, const auto&, std::int64_t) { return nullptr; }});
    return trireme::run_program(argc, argv);
  }
  const auto run = trireme::init(argc, argv);
  trireme::Group& dp = run->dp_pg();
  at::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1));
  net->to(at::kDouble);
  auto model = trireme::fully_shard(net, dp);
  torch::optim::SGD optimizer(model.shards(), 0.1);
  double last = 0;
  for (int step = 0; step < 20; ++step) {
    const at::Tensor all = (at::arange(32, at::kDouble) * 0.3 + step).sin().view({8, 4});
    const at::Tensor x = all.tensor_split(dp.size())[static_cast<std::size_t>(dp.rank())];
    optimizer.zero_grad();
    const at::Tensor loss = (model(x) - x.sum(1, true)).square().mean();
    loss.backward();
    optimizer.step();
    last = dp.all_reduce(loss.detach().view({1}), trireme::Reduce::avg).wait().item<double>();
  }
  if (run->rank() == 0) std::cout << "loss " << last << std::endl;
}
