#include "tests/parity/tensor_parallel_cells.hpp"

#include "tests/parity/covering.hpp"

namespace trireme::parity {
namespace {

constexpr std::array<int, kFactors> kValues{4, 3, 2, 3, 2, 2, 3, 2};

ModelConfig model_of(const Choice& c) {
  ModelConfig m;
  m.model_type = std::array{"gpt2", "llama", "qwen3", "gemma2"}[static_cast<std::size_t>(c[family])];
  const bool gemma2 = m.model_type == "gemma2";
  const bool gpt2 = m.model_type == "gpt2";
  m.hidden_size = 32;
  m.num_hidden_layers = 2;
  m.num_attention_heads = gpt2 ? 4 : 8;
  m.head_dim = gpt2 ? 8 : 6;
  m.num_key_value_heads = gpt2 ? 4 : std::array{4, 1, 2}[static_cast<std::size_t>(c[kv])];  // also fewer than tp
  m.intermediate_size = 96;
  m.vocab_size = 257;
  m.max_position_embeddings = 64;
  m.hidden_act = gpt2 ? "gelu_new" : gemma2 ? "gelu_pytorch_tanh" : "silu";
  if (gemma2) {
    m.sliding_window = 5;
    m.sliding_window_pattern = 2;
    m.query_pre_attn_scalar = 9;
    m.attn_logit_softcapping = 2;
    m.final_logit_softcapping = 3;
  }
  m.tie_word_embeddings = gpt2 || gemma2;
  m.qk_norm = m.model_type == "qwen3";
  m.attention_bias = c[bias] == 1;
  if (gpt2) m.embd_pdrop = m.resid_pdrop = c[dropout] ? 0.1 : 0;
  m.attention_dropout = c[dropout] ? 0.1 : 0;
  return m;
}

bool is_legal(const Choice& c) {
  if (c[family] == 3) return c[dropout] == 0;  // probabilities of capped scores cannot be dropped
  return c[family] != 0 || (c[kv] == 0 && c[bias] == 0);
}

}  // namespace

Cell cell_of(const Choice& c) {
  Cell cell;
  cell.model = model_of(c);
  cell.degrees.tp = 1 << c[tp];
  cell.sequence_parallel = c[sequence] == 1;
  cell.recompute = static_cast<config::Recompute>(c[recompute]);
  cell.ignores = c[ignores] == 1;
  return cell;
}

std::vector<Choice> all_choices() {
  std::vector<Choice> all = all_combinations(kValues);
  std::erase_if(all, [](const Choice& c) { return !is_legal(c); });
  return all;
}

std::vector<Choice> covering(const std::vector<Choice>& all) { return covering(all, 4); }

}  // namespace trireme::parity
