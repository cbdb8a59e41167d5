// Forward and backward of GPT 50M, one step per request line: against_transformers.py alternates it with transformers.
//   in   "threads N" | "dtype f32|bf16" | "step none|selective|full"
//   out  "SECONDS PEAK_BYTES LOSS"      peak: of all CPU tensors, parameters and gradients included
#include <chrono>
#include <iostream>
#include <optional>
#include <string>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/nn/init.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/runtime/memory/counted_memory.hpp"

namespace {

using namespace trireme;

ModelConfig gpt_50m() {
  ModelConfig m;
  m.model_type = "gpt2";
  m.hidden_size = 512;
  m.num_hidden_layers = 12;
  m.num_attention_heads = m.num_key_value_heads = 8;
  m.head_dim = 64;
  m.intermediate_size = 2048;
  m.vocab_size = 32000;
  m.max_position_embeddings = 256;
  m.hidden_act = "gelu_new";
  m.tie_word_embeddings = true;
  return m;
}

void serve(World& world) {
  Mesh mesh(Grid::dense({}), world);
  constexpr std::int64_t kSamples = 4, kLength = 256;
  const CountedMemory memory;
  std::optional<Decoder> decoder;
  const auto make = [&](at::ScalarType dtype) {
    decoder.reset();
    const InitScope scope(at::kCPU, dtype);
    decoder.emplace(gpt_50m(), mesh);
    init_parameters(*decoder, mesh, {.seed = 1, .scheme = InitScheme::gpt2, .layers = 12});
  };
  make(at::kFloat);
  const at::Tensor all = at::remainder(at::arange(kSamples * kLength + 1) * 7919, 32000);
  const at::Tensor ids_T = all.narrow(0, 0, kSamples * kLength), targets_T = all.narrow(0, 1, kSamples * kLength);
  const ForwardContext context = whole_samples(kSamples, kLength);
  for (std::string word, value; std::cin >> word >> value;) {
    if (word == "threads") {
      at::set_num_threads(std::stoi(value));
    } else if (word == "dtype") {
      make(value == "bf16" ? at::kBFloat16 : at::kFloat);
    } else {
      decoder->set_recompute(config::recompute_of(value));
      decoder->zero_grad();
      memory.forget_peak();
      const auto start = std::chrono::steady_clock::now();
      const LossSum sum = decoder->loss(ids_T, targets_T, context);
      const at::Tensor loss = sum.loss / sum.count;
      loss.backward();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      std::cout << took.count() << " " << memory.peak() << " " << loss.item<double>() << std::endl;
    }
  }
}

}  // namespace

int main() {
  run_ranks(1, [](World& world) { serve(world); });
}
