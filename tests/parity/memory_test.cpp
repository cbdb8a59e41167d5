// Measures the memory that a layer stores for backward, and the peak of the loss, against the formulas.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/model/block.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/runtime/memory/counted_memory.hpp"
#include "trireme/testing/nn_helpers.hpp"

namespace trireme {
namespace {

ModelConfig llama_layer() {
  ModelConfig m;
  m.hidden_size = 256;
  m.num_hidden_layers = 1;
  m.num_attention_heads = 8;
  m.num_key_value_heads = 4;
  m.head_dim = 32;
  m.intermediate_size = 768;
  m.vocab_size = 64;
  return m;
}

/// Bytes per token, over all ranks, stored for the backward of one layer in bf16. The output counts; the input does
/// not, since it is the output of the previous layer.
double kept_bytes(int ranks, bool sequence_parallel, config::Recompute mode) {
  constexpr std::int64_t kSamples = 2, kLength = 64;
  const CountedMemory memory;
  std::int64_t kept = 0;
  run_ranks(ranks, [&](World& world) {
    Mesh mesh(Grid::dense({.tp = ranks}), world);
    Group& group = mesh.group(Axis::tp);
    const Parallel parallel(mesh, sequence_parallel);
    const InitScope bf16(at::kCPU, at::kBFloat16);
    Block block(llama_layer(), parallel, 0);
    init_parameters(block, mesh, {});
    const ForwardContext context = whole_samples(kSamples, kLength);
    Rope rope(*rope_options(llama_layer()));
    const TokenFacts tokens{
        .context = context,
        .attention = {.rotation = rope.rotation(context.positions_T, context.whole_length, at::kBFloat16)},
        .rows_t = parallel.own_tokens(context.rows_T())};
    const at::Tensor all = normal_tensor({context.tokens(), 256}, 1, "x").to(at::kBFloat16);
    const at::Tensor x = parallel.own_tokens(all).clone().set_requires_grad(true);
    group.barrier().wait();
    const std::int64_t before = memory.alive();
    group.barrier().wait();
    const at::Tensor y = run_layer(block, x, tokens, mode);
    group.barrier().wait();
    if (group.rank() == 0) kept = memory.alive() - before;
    group.barrier().wait();
    y.sum().backward();
  });
  return static_cast<double>(kept) / (kSamples * kLength);
}

TEST(Memory, ALlamaLayerKeepsWhatTheFormulaSays) {
  const ModelConfig m = llama_layer();
  const auto h = static_cast<double>(m.hidden_size), kd = static_cast<double>(m.num_key_value_heads * m.head_dim),
             f = static_cast<double>(m.intermediate_size);
  const double formula = 12 * h + 4 * kd + 6 * f;  // over all ranks, if everything is sharded
  for (const int ranks : {1, 2, 4}) {
    const double kept = kept_bytes(ranks, ranks > 1, config::Recompute::none);
    std::cout << "  tp " << ranks << ", sequence parallel: " << kept << " bytes a token, formula " << formula
              << ", ratio " << kept / formula << "\n";
    EXPECT_NEAR(kept / formula, 1, 0.03) << ranks;
    // Selective: without the outputs of the norms and the MLP's product.
    EXPECT_NEAR(kept_bytes(ranks, ranks > 1, config::Recompute::selective) / (formula - 4 * h - 2 * f), 1, 0.03)
        << ranks;
    // Full: only the output.
    EXPECT_NEAR(kept_bytes(ranks, ranks > 1, config::Recompute::full) / (2 * h), 1, 0.03) << ranks;
  }
  // Without sequence parallelism two ranks store the activations between the sharded layers twice: the norms' outputs,
  // the residual stream in the middle and at the end, 8 h of the 12.
  EXPECT_NEAR(kept_bytes(2, false, config::Recompute::none) / (formula + 8 * h), 1, 0.03);
}

TEST(Memory, TheLossPeaksFarBelowWholeLogits) {
  constexpr std::int64_t kTokens = 4096, kEntries = 32000, kWidth = 128;
  std::vector<double> peaks;
  std::vector<at::Tensor> grads;
  for (const bool ours : {false, true}) {
    const CountedMemory memory;
    const at::Tensor x = normal_tensor({kTokens, kWidth}, 1, "x").to(at::kFloat).set_requires_grad(true);
    const at::Tensor w = normal_tensor({kEntries, kWidth}, 2, "w").to(at::kFloat).mul_(0.05).set_requires_grad(true);
    const at::Tensor targets = at::remainder(at::arange(kTokens) * 7919, kEntries);
    const std::int64_t before = memory.alive();
    run_ranks(1, [&](World& world) {
      Mesh mesh(Grid::dense({}), world);
      const at::Tensor loss = ours ? sharded_cross_entropy(x, w, targets, kEntries, mesh).loss
                                   : at::cross_entropy_loss(at::linear(x, w), targets, {}, at::Reduction::Sum);
      loss.backward();
    });
    peaks.push_back(static_cast<double>(memory.peak() - before));
    grads.push_back(w.grad());
  }
  std::cout << "  peak " << peaks[1] / 1e6 << " MB, with whole logits " << peaks[0] / 1e6 << " MB, ratio "
            << peaks[1] / peaks[0] << "\n";
  EXPECT_LT(peaks[1], 0.1 * peaks[0]);
  EXPECT_LT(relative(grads[1], grads[0]), 1e-5);
}

}  // namespace
}  // namespace trireme
