// A transformer of one's own, with a loss of one's own, over every axis at once: attention heads and hidden features
// over tp, layers over pp, and what a rank has of them sharded over dp. Every layout gives the same losses, and goes on
// from the checkpoint of any other.
//   ./composed_transformer -n 8 2 2     tp 2, pp 2 and therefore dp 2: 20 steps, a checkpoint, 20 more
//   ./composed_transformer -n 4 1 2     tp 1, pp 2, dp 2: goes on after the checkpoint
#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <string>

#include <torch/nn.h>
#include <torch/optim/adamw.h>
#include <trireme/trireme.hpp>

using namespace trireme;

constexpr std::int64_t kVocab = 32, kLength = 16, kWidth = 32, kHeads = 4, kHeadWidth = kWidth / kHeads, kBatch = 16;

struct Embed : torch::nn::Module {
  explicit Embed(Mesh& mesh)
      : tokens(register_module("tokens", std::make_shared<ParallelVocabulary>(kVocab, kWidth, mesh))) {}
  at::Tensor forward(const at::Tensor& ids) { return tokens->forward(ids.flatten()); }
  std::shared_ptr<ParallelVocabulary> tokens;  // a rank of tp has some of the rows
};

struct Block : torch::nn::Module {
  explicit Block(Mesh& mesh)
      : norm1(register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))),
        norm2(register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))),
        q(register_module("q", std::make_shared<ColumnLinear>(kWidth, kWidth, mesh))),
        k(register_module("k", std::make_shared<ColumnLinear>(kWidth, kWidth, mesh))),
        v(register_module("v", std::make_shared<ColumnLinear>(kWidth, kWidth, mesh))),
        up(register_module("up", std::make_shared<ColumnLinear>(kWidth, 4 * kWidth, mesh))),
        proj(register_module("proj", std::make_shared<RowLinear>(kWidth, kWidth, mesh))),
        down(register_module("down", std::make_shared<RowLinear>(4 * kWidth, kWidth, mesh))) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor in = norm1(x);
    const auto heads = [](const at::Tensor& y) {
      return y.view({-1, kLength, y.size(1) / kHeadWidth, kHeadWidth}).transpose(1, 2);
    };
    const at::Tensor mixed = at::scaled_dot_product_attention(heads(q->forward(in)), heads(k->forward(in)),
                                                              heads(v->forward(in)), {}, 0.0, /*is_causal=*/true);
    const at::Tensor y = x + proj->forward(mixed.transpose(1, 2).flatten(2).flatten(0, 1));
    return y + down->forward(at::gelu(up->forward(norm2(y))));
  }
  torch::nn::LayerNorm norm1, norm2;          // the same on every rank of tp
  std::shared_ptr<ColumnLinear> q, k, v, up;  // heads / tp, hidden / tp
  std::shared_ptr<RowLinear> proj, down;
};

struct Head : torch::nn::Module {
  explicit Head(Mesh& mesh)
      : out(register_module(
            "out", std::make_shared<ColumnLinear>(kWidth, kVocab, mesh, ColumnOptions{.gather_output = true}))) {}
  at::Tensor forward(const at::Tensor& x) { return out->forward(x).view({-1, kLength, kVocab}); }
  std::shared_ptr<ColumnLinear> out;
};

/// Cross-entropy that asks for less than certainty, and for small logits.
at::Tensor own_loss(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor flat = logits.flatten(0, 1);
  return at::cross_entropy_loss(flat, targets.flatten(), {}, at::Reduction::Mean, -100, /*label_smoothing=*/0.1) +
         1e-3 * flat.logsumexp(1).square().mean();
}

/// Sequences that count up by a stride, modulo the vocabulary: those of a step for all ranks of dp.
at::Tensor sequences_of(int step) {
  const at::Tensor n = at::arange(kBatch) + kBatch * step;
  return (n.unsqueeze(1) * 7 + (n.remainder(4) + 1).unsqueeze(1) * at::arange(kLength + 1)).remainder(kVocab);
}

int main(int argc, char** argv) {
  const bool is_given = argc > 2 && argv[argc - 2] != std::string("-n");
  const int tp = is_given ? std::atoi(argv[argc - 2]) : 1, pp = is_given ? std::atoi(argv[argc - 1]) : 1;
  const auto run =
      init(argc, argv, {.sizes = {.tensor_parallel_size = tp, .data_parallel_size = 0, .pipeline_parallel_size = pp}});
  Mesh& mesh = run->mesh();
  const int dp = run->dp_pg().size();

  // Initial values follow from the number of the stage, and are the same on every layout.
  const auto stage = [&mesh]<class M>(std::uint64_t number, std::shared_ptr<M> module) {
    init_parameters(*module, mesh, {.seed = number, .range = 0.1});
    module->to(at::kDouble);  // to compare layouts; bfloat16 and f32 otherwise: MixedPrecision
    return Stage(module);
  };
  Pipeline pipe(
      mesh, run->device(),
      {[&] { return stage(0, std::make_shared<Embed>(mesh)); }, [&] { return stage(1, std::make_shared<Block>(mesh)); },
       [&] { return stage(2, std::make_shared<Block>(mesh)); }, [&] { return stage(3, std::make_shared<Head>(mesh)); }},
      {.schedule = "1f1b", .microbatches = 2, .shard = FullyShardOptions{.sharding = Sharding::full_shard}});
  torch::optim::AdamW optimizer(pipe.parameters(), torch::optim::AdamWOptions(3e-3));

  std::int64_t step = 0;
  if (std::filesystem::exists("checkpoints")) step = load_checkpoint("checkpoints", pipe, {.optimizer = &optimizer});
  if (run->rank() == 0 && step > 0) std::cout << "goes on after step " << step << std::endl;
  while (step < 40) {
    const at::Tensor all = sequences_of(static_cast<int>(step));
    const at::Tensor own = all.tensor_split(dp)[static_cast<std::size_t>(run->dp_pg().rank())];
    optimizer.zero_grad();
    const at::Tensor loss = pipe.step({own.narrow(1, 0, kLength)}, own.narrow(1, 1, kLength), own_loss);
    pipe.clip_grad_norm(1.0);
    optimizer.step();
    if (++step % 20 == 0 && run->rank() == 0)
      std::cout << "step " << step << ": loss " << std::setprecision(12) << loss.item<double>() << std::endl;
    if (step == 20) save_checkpoint("checkpoints", step, pipe, {.optimizer = &optimizer});
  }
}
