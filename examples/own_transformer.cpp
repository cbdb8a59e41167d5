// A language model of one's own, in plain libtorch: with Unit<Block> in place of Block each layer is a unit that is
// gathered and freed by itself. On GPUs bf16 in forward and backward, f32 in the optimizer.
//   ./own_transformer -n 2
#include <iostream>

#include <torch/nn.h>
#include <torch/optim/adamw.h>
#include <trireme/trireme.hpp>

struct BlockImpl : torch::nn::Module {
  BlockImpl(std::int64_t width, std::int64_t the_heads)
      : heads(the_heads),
        norm1(torch::nn::LayerNormOptions({width})),
        norm2(torch::nn::LayerNormOptions({width})),
        qkv(width, 3 * width),
        proj(width, width),
        up(width, 4 * width),
        down(4 * width, width) {
    register_module("norm1", norm1), register_module("norm2", norm2);
    register_module("qkv", qkv), register_module("proj", proj);
    register_module("up", up), register_module("down", down);
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto parts = qkv(norm1(x)).unflatten(2, {3, heads, -1}).permute({2, 0, 3, 1, 4});
    const at::Tensor mixed =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
    const at::Tensor y = x + proj(mixed.transpose(1, 2).flatten(2));
    return y + down(at::gelu(up(norm2(y))));
  }
  const std::int64_t heads;
  torch::nn::LayerNorm norm1, norm2;
  torch::nn::Linear qkv, proj, up, down;
};
TORCH_MODULE(Block);

struct LanguageModelImpl : torch::nn::Module {
  LanguageModelImpl(std::int64_t vocab, std::int64_t length, std::int64_t width)
      : tokens(vocab, width), positions(length, width), first(width, 4), second(width, 4), head(width, vocab) {
    register_module("tokens", tokens), register_module("positions", positions);
    register_module("first", first), register_module("second", second);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& ids) {
    const at::Tensor place = at::arange(ids.size(1), ids.options());
    return head(second(first(tokens(ids) + positions(place))));
  }
  torch::nn::Embedding tokens, positions;
  trireme::Unit<Block> first, second;  // the only change
  torch::nn::Linear head;
};
TORCH_MODULE(LanguageModel);

int main(int argc, char** argv) {
  using namespace trireme;
  const auto run = init(argc, argv);
  Group& dp = run->dp_pg();
  constexpr std::int64_t kVocab = 32, kLength = 24, kBatch = 16;

  at::manual_seed(0);
  LanguageModel net(kVocab, kLength, 64);
  const MixedPrecision bf16{.param = at::kBFloat16, .reduce = at::kFloat};
  // From the CPU to the device unit by unit.
  auto model =
      fully_shard(net, dp, {.precision = run->device().is_cuda() ? bf16 : MixedPrecision{}, .device = run->device()});
  torch::optim::AdamW optimizer(model.shards(), torch::optim::AdamWOptions(3e-3));
  if (run->rank() == 0) std::cout << model.units_text();

  at::manual_seed(1);  // the same samples on every rank: sequences that count up by a stride, modulo the vocabulary
  for (int step = 1; step <= 150; ++step) {
    const at::Tensor start = at::randint(kVocab, {kBatch, 1}), stride = at::randint(1, 5, {kBatch, 1});
    const at::Tensor all = ((start + stride * at::arange(kLength + 1)) % kVocab).to(at::kLong);
    const at::Tensor own = all.tensor_split(dp.size())[static_cast<std::size_t>(dp.rank())].to(run->device());
    optimizer.zero_grad();
    const at::Tensor logits = model(own.narrow(1, 0, kLength)).to(at::kFloat);
    const at::Tensor loss = at::cross_entropy_loss(logits.flatten(0, 1), own.narrow(1, 1, kLength).flatten());
    loss.backward();
    optimizer.step();
    const at::Tensor mean = dp.all_reduce(loss.detach().view({1}), Reduce::avg).wait();
    if (step % 50 == 0 && run->rank() == 0)
      std::cout << "step " << step << ": loss " << mean.item<double>() << std::endl;
  }
}
