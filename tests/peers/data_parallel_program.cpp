// A network with batch norms, an encoder and a table with sparse gradients, trained with DataParallel in fp64, for
// comparison with PyTorch's DistributedDataParallel (data_parallel_agrees.py).
//   trireme_data_parallel_peer FOLDER RATE STEPS BATCH      as a rank of any launcher
// FOLDER/weights.f64: all parameters in the order of registration, then the running statistics;
// FOLDER/batches.f64: of each step and rank, BATCH samples of 16 numbers. Rank R writes FOLDER/losses_R.f64, and rank 0
// FOLDER/trained.f64, in the order of weights.f64.
#include <filesystem>
#include <fstream>
#include <iostream>

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/optim/sgd.h>

#include "trireme/base/error.hpp"
#include "trireme/module/data_parallel.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"
#include "trireme/runtime/rank/rank_main.hpp"

namespace {

using namespace trireme;

struct Net : torch::nn::Module {
  Net()
      : conv(torch::nn::Conv2dOptions(1, 4, 3).padding(1)),
        norm(4),
        encoder(torch::nn::TransformerEncoderLayerOptions(4, 2).dim_feedforward(8).dropout(0)),
        table(torch::nn::EmbeddingOptions(6, 4).sparse(true)),
        out(4, 3) {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("encoder", encoder);
    register_module("table", table);
    register_module("out", out);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor pixels = norm(conv(x.view({-1, 1, 4, 4}))).relu().flatten(2).permute({2, 0, 1});
    const at::Tensor words = table((x.select(1, 0).abs() * 5).to(at::kLong).remainder(6));
    return out(encoder(pixels).mean(0) + words);
  }
  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d norm;
  torch::nn::TransformerEncoderLayer encoder;
  torch::nn::Embedding table;
  torch::nn::Linear out;
};

std::vector<at::Tensor> numbers_of(Net& net) {
  std::vector<at::Tensor> all = net.parameters();
  for (const auto& buffer : net.named_buffers())
    if (buffer.key().find("running_") != std::string::npos) all.push_back(buffer.value());
  return all;
}

at::Tensor read(const std::filesystem::path& file) {
  const auto count = static_cast<std::int64_t>(std::filesystem::file_size(file) / sizeof(double));
  const at::Tensor out = at::empty({count}, at::kDouble);
  std::ifstream(file, std::ios::binary)
      .read(static_cast<char*>(out.data_ptr()), static_cast<std::streamsize>(out.nbytes()));
  return out;
}

void write(const std::filesystem::path& file, const at::Tensor& numbers) {
  std::ofstream(file, std::ios::binary)
      .write(static_cast<const char*>(numbers.const_data_ptr()), static_cast<std::streamsize>(numbers.nbytes()));
}

void train(Group& group, const std::filesystem::path& folder, double rate, std::int64_t steps, std::int64_t batch) {
  Net net;
  net.to(at::kDouble);
  const at::Tensor weights = read(folder / "weights.f64"), batches = read(folder / "batches.f64");
  if (group.rank() == 0) {  // the others get them from it
    const at::NoGradGuard no_grad;
    std::int64_t begin = 0;
    for (at::Tensor tensor : numbers_of(net)) {
      tensor.copy_(weights.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
      begin += tensor.numel();
    }
    require<DataError>(begin == weights.numel(), "weights.f64 has ", weights.numel(), " numbers, not ", begin);
  }
  const DataParallel parallel(net, group, {.bucket_mb = 1e-3});
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(rate));
  const at::Tensor samples = batches.view({steps, group.size(), batch, 16});
  std::vector<double> losses;
  for (std::int64_t step = 0; step < steps; ++step) {
    const at::Tensor x = samples[step][group.rank()], y = (x.sum(1).abs() * 3).to(at::kLong).remainder(3);
    optimizer.zero_grad();
    const at::Tensor loss = at::cross_entropy_loss(net.forward(x), y);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  write(folder / text("losses_", group.rank(), ".f64"), at::tensor(losses, at::kDouble));
  if (group.rank() != 0) return;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& tensor : numbers_of(net)) parts.push_back(tensor.detach().reshape(-1));
  write(folder / "trained.f64", at::cat(parts));
}

}  // namespace

int main(int argc, char** argv) {
  const RankMain how{.words = {argv, argv + argc}, .variables = process_variables(), .quiet = true};
  return rank_main(how, [&](const Environment& env) {
    require<ConfigError>(argc == 5, "usage: trireme_data_parallel_peer FOLDER RATE STEPS BATCH");
    const ParallelContext context({.data_parallel_size = env.world_size}, env, how.variables);
    train(context.dp_pg(), argv[1], std::stod(argv[2]), std::stoll(argv[3]), std::stoll(argv[4]));
  });
}
