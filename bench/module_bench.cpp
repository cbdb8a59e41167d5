// Steps of bert or bertbig of trireme/workloads with data_parallel or fully_shard: forward, backward and communication,
// without the optimizer. Rank 0 prints the seconds of each step. For against_torch_modules.py.
//   usage: trireme launch -n 2 -- trireme_module_bench data_parallel|fully_shard bert|bertbig SAMPLES STEPS
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include <ATen/ATen.h>

#include "trireme/module/data_parallel.hpp"
#include "trireme/module/fully_shard.hpp"
#include "trireme/runtime/rank/init.hpp"
#include "trireme/workloads/workload.hpp"

int main(int argc, char** argv) {
  using namespace trireme;
  const auto run = init(argc, argv);
  if (argc != 5) {
    std::fprintf(stderr, "usage: trireme_module_bench data_parallel|fully_shard bert|bertbig SAMPLES STEPS\n");
    return 64;
  }
  at::set_num_threads(1);
  const bool sharded = std::string(argv[1]) == "fully_shard";
  const std::int64_t samples = std::atoll(argv[3]);
  const workloads::Workload work = workloads::make_workload(argv[2], samples * run->world_size(), 1);
  Group& dp = run->dp_pg();
  const at::Tensor x = work.train_x.narrow(0, run->rank() * samples, samples);
  const at::Tensor y = work.train_y.narrow(0, run->rank() * samples, samples);
  std::optional<DataParallel> replicated;
  std::optional<FullyShard<torch::nn::SequentialImpl>> shards;
  torch::nn::Sequential net = work.model;
  if (sharded)
    shards.emplace(fully_shard(net, dp, {.policy = wrap_by_size(1000)}));
  else
    replicated.emplace(*net, dp);
  for (int step = 0; step < std::atoi(argv[4]); ++step) {
    const std::vector<at::Tensor> parameters = shards ? shards->shards() : net->parameters();
    for (at::Tensor parameter : parameters) parameter.mutable_grad() = at::Tensor();
    dp.barrier().wait();
    const auto begin = std::chrono::steady_clock::now();
    const at::Tensor out = shards ? (*shards)(x) : net->forward(x);
    const at::Tensor loss = at::cross_entropy_loss(out, y);
    loss.backward();
    const double value = loss.item<double>();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (run->rank() == 0) std::printf("step %.6f loss %.8f\n", took.count(), value);
  }
}
