// A residual network as a pipeline: each rank has some of the stages, and microbatches flow through all.
//   ./pipeline_resnet -n 2
#include <iostream>

#include <torch/nn.h>
#include <torch/optim/sgd.h>
#include <trireme/trireme.hpp>

struct ResidualImpl : torch::nn::Module {
  explicit ResidualImpl(int channels) : norm(2, channels), conv(same(channels)), again(same(channels)) {
    register_module("norm", norm);
    register_module("conv", conv);
    register_module("again", again);
  }
  static torch::nn::Conv2dOptions same(int channels) {
    return torch::nn::Conv2dOptions(channels, channels, 3).padding(1);
  }
  at::Tensor forward(const at::Tensor& x) { return x + again(conv(norm(x)).relu()); }
  torch::nn::GroupNorm norm;
  torch::nn::Conv2d conv, again;
};
TORCH_MODULE(Residual);

struct HeadImpl : torch::nn::Module {
  HeadImpl(int channels, int classes) : out(channels, classes) { register_module("out", out); }
  at::Tensor forward(const at::Tensor& x) { return out(x.mean({2, 3})); }
  torch::nn::Linear out;
};
TORCH_MODULE(Head);

/// Stripes: class 0 has horizontal ones, class 1 vertical ones, with noise.
at::Tensor images(const at::Tensor& labels) {
  const at::Tensor wave = (at::arange(8) * 1.57).sin();
  const at::Tensor rows = wave.view({1, 1, 8, 1}), columns = wave.view({1, 1, 1, 8});
  const at::Tensor vertical = labels.view({-1, 1, 1, 1}).to(at::kFloat);
  return rows * (1 - vertical) + columns * vertical + 0.5 * at::randn({labels.size(0), 1, 8, 8});
}

int main(int argc, char** argv) {
  using namespace trireme;
  const auto run = init(argc, argv, {.sizes = {.data_parallel_size = 1, .pipeline_parallel_size = 0}});  // all ranks

  at::manual_seed(0);
  // Each builder is called on the rank of its stage alone.
  Pipeline pipe(run->mesh(), run->device(),
                {[] { return torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).padding(1)); },
                 [] { return Residual(8); }, [] { return Residual(8); }, [] { return Head(8, 2); }},
                {.schedule = "1f1b", .microbatches = 4});
  torch::optim::SGD optimizer(pipe.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));

  at::manual_seed(1);  // the same data on every rank
  for (int step = 1; step <= 40; ++step) {
    const at::Tensor labels = at::randint(2, {32}, at::kLong), x = images(labels);
    optimizer.zero_grad();
    const at::Tensor loss = pipe.step({x}, labels, [](const at::Tensor& logits, const at::Tensor& target) {
      return at::cross_entropy_loss(logits, target);
    });
    optimizer.step();
    if (step % 20 == 0 && run->rank() == 0)
      std::cout << "step " << step << ": loss " << loss.item<double>() << std::endl;
  }
  const at::Tensor labels = at::randint(2, {100}, at::kLong);
  const at::Tensor right = pipe.forward({images(labels)}).argmax(1).cpu().eq(labels).sum();
  if (run->rank() == 0) std::cout << "correct: " << right.item<std::int64_t>() << " of 100" << std::endl;
}
