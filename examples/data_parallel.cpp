// A convolutional network with batch norms, as one would write it for one process, trained by all ranks: each has a
// part of the batch. The lines that make it so are marked with "ranks".
//   ./data_parallel -n 4
#include <iostream>

#include <torch/nn.h>
#include <torch/optim/sgd.h>
#include <trireme/trireme.hpp>

struct NetImpl : torch::nn::Module {
  NetImpl() : conv(torch::nn::Conv2dOptions(1, 16, 3).padding(1)), norm(16), hidden(16 * 16, 64), out(64, 10) {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("hidden", hidden);
    register_module("out", out);
  }
  at::Tensor forward(const at::Tensor& x) {
    return out(hidden(at::max_pool2d(norm(conv(x)).relu(), 2).flatten(1)).relu());
  }
  torch::nn::Conv2d conv;
  trireme::SyncBatchNorm norm;  // ranks: the mean and variance of all samples, not of a part
  torch::nn::Linear hidden, out;
};
TORCH_MODULE(Net);

struct Digits {
  at::Tensor images, labels;
};
/// Seven-segment digits of 8 x 8 pixels, shifted by up to two pixels, with noise.
Digits generate(std::int64_t count, std::uint64_t seed) {
  static constexpr int kSegments[10] = {0x77, 0x24, 0x5d, 0x6d, 0x2e, 0x6b, 0x7b, 0x25, 0x7f, 0x6f};
  at::manual_seed(seed);
  Digits digits{0.2 * at::randn({count, 1, 8, 8}), at::randint(10, {count}, at::kLong)};
  const at::Tensor shifts = at::randint(3, {count, 2}, at::kLong);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto row = shifts[i][0].item<std::int64_t>(), column = shifts[i][1].item<std::int64_t>();
    const at::Tensor image = digits.images[i][0].narrow(0, row, 5).narrow(1, column, 4);
    const int lit = kSegments[digits.labels[i].item<std::int64_t>()];
    for (int segment = 0; segment < 7; ++segment) {
      if (!(lit >> segment & 1)) continue;
      if (segment % 3 == 0)
        image[segment * 2 / 3].add_(1);  // 0, 3, 6: horizontal
      else
        image.narrow(0, segment < 3 ? 0 : 2, 3).select(1, segment % 3 == 1 ? 0 : 3).add_(1);
    }
  }
  return digits;
}

int main(int argc, char** argv) {
  const auto run = trireme::init(argc, argv);  // ranks
  trireme::Group& dp = run->dp_pg();           // ranks

  at::manual_seed(0);
  Net net;
  net->to(run->device());
  const auto parallel = trireme::data_parallel(net, dp);  // ranks
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));

  constexpr std::int64_t kBatch = 64;
  const Digits digits = generate(2048, 1);  // the same on every rank
  for (int epoch = 1; epoch <= 5; ++epoch) {
    double sum = 0;
    for (std::int64_t begin = 0; begin < digits.images.size(0); begin += kBatch) {
      const std::int64_t each = kBatch / dp.size(), first = begin + dp.rank() * each;  // ranks
      const at::Tensor x = digits.images.narrow(0, first, each).to(run->device());
      const at::Tensor y = digits.labels.narrow(0, first, each).to(run->device());
      optimizer.zero_grad();
      const at::Tensor loss = at::cross_entropy_loss(net->forward(x), y);
      loss.backward();
      optimizer.step();
      sum += loss.item<double>() * static_cast<double>(each);
    }
    const at::Tensor total = dp.all_reduce(at::tensor({sum}).to(run->device())).wait();
    if (run->rank() == 0)
      std::cout << "epoch " << epoch << ": loss " << total.item<double>() / static_cast<double>(digits.images.size(0))
                << std::endl;
  }
  net->eval();
  const Digits test = generate(500, 2);
  const at::Tensor found = net->forward(test.images.to(run->device())).argmax(1).cpu();
  if (run->rank() == 0)
    std::cout << "correct: " << found.eq(test.labels).sum().item<std::int64_t>() << " of 500" << std::endl;
}
