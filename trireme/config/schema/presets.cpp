#include "trireme/config/schema/presets.hpp"

#include <map>
#include <utility>

namespace trireme::config {
namespace {

/// Without dropout, as pre-training is done today. Hugging Face folders have their own value.
ModelConfig gpt2(std::int64_t layers, std::int64_t heads, std::int64_t hidden) {
  ModelConfig m;
  m.model_type = "gpt2";
  m.hidden_size = hidden;
  m.num_hidden_layers = layers;
  m.num_attention_heads = heads;
  m.vocab_size = 50257;
  m.max_position_embeddings = 1024;
  m.hidden_act = "gelu_new";
  m.norm_eps = 1e-5;
  m.tie_word_embeddings = true;
  return m;
}

/// The shape of GPT-3 175B in the paper (arXiv 2005.14165), without its alternating sparse attention.
ModelConfig gpt3_175b() {
  ModelConfig m = gpt2(96, 96, 12288);
  m.max_position_embeddings = 2048;
  m.embd_pdrop = m.resid_pdrop = m.attention_dropout = 0.1;  // which published activation sizes count
  return m;
}

ModelConfig llama(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t kv_heads,
                  std::int64_t ffn) {
  ModelConfig m;
  m.hidden_size = hidden;
  m.num_hidden_layers = layers;
  m.num_attention_heads = heads;
  m.num_key_value_heads = kv_heads;
  m.intermediate_size = ffn;
  return m;
}

ModelConfig llama3(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t ffn) {
  ModelConfig m = llama(layers, hidden, heads, 8, ffn);
  m.vocab_size = 128256;
  m.max_position_embeddings = 8192;
  m.rope_theta = 500000;
  return m;
}

/// Llama 3.1 and later extend RoPE to 131,072 positions.
ModelConfig stretched(ModelConfig m, double factor) {
  m.max_position_embeddings = 131072;
  m.rope_scaling = {"llama3", factor, 1, 4, 8192};
  return m;
}

ModelConfig llama32(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t head_dim) {
  ModelConfig m = stretched(llama3(layers, hidden, heads, 8192), 32);
  m.head_dim = head_dim;
  m.tie_word_embeddings = true;
  return m;
}

/// torchtitan's model for trials: dim 256, SwiGLU's width 2/3 of 4 dim in steps of 256.
ModelConfig torchtitan_debug() {
  ModelConfig m = stretched(llama3(6, 256, 16, 768), 8);
  m.num_key_value_heads = 16;
  m.vocab_size = 2048;
  return m;
}

ModelConfig llama2(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t kv_heads,
                   std::int64_t ffn) {
  ModelConfig m = llama(layers, hidden, heads, kv_heads, ffn);
  m.vocab_size = 32000;
  m.max_position_embeddings = 4096;
  return m;
}

ModelConfig tiny_llama() {
  ModelConfig m = llama(4, 128, 4, 4, 384);
  m.head_dim = 32;
  m.vocab_size = 512;
  m.tie_word_embeddings = true;
  return m;
}

ModelConfig qwen3_06b() {
  ModelConfig m = llama(28, 1024, 16, 8, 3072);
  m.model_type = "qwen3";
  m.head_dim = 128;
  m.vocab_size = 151936;
  m.max_position_embeddings = 40960;
  m.norm_eps = 1e-6;
  m.rope_theta = 1e6;
  m.tie_word_embeddings = true;
  m.qk_norm = true;
  return m;
}

ModelConfig mixtral_8x7b() {
  ModelConfig m = llama(32, 4096, 32, 8, 14336);
  m.model_type = "mixtral";
  m.vocab_size = 32000;
  m.max_position_embeddings = 32768;
  m.rope_theta = 1e6;
  m.num_local_experts = 8;
  m.num_experts_per_tok = 2;
  m.router_aux_loss_coef = 0.02;
  return m;
}

ModelConfig gemma2(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t kv_heads,
                   std::int64_t ffn) {
  ModelConfig m = llama(layers, hidden, heads, kv_heads, ffn);
  m.model_type = "gemma2";
  m.head_dim = 256;
  m.vocab_size = 256000;
  m.max_position_embeddings = 8192;
  m.norm_eps = 1e-6;
  m.hidden_act = "gelu_pytorch_tanh";
  m.tie_word_embeddings = true;
  m.sliding_window = 4096;
  m.sliding_window_pattern = 2;
  m.query_pre_attn_scalar = 256;
  m.attn_logit_softcapping = 50;
  m.final_logit_softcapping = 30;
  return m;
}

const std::vector<std::pair<std::string, ModelConfig>>& presets() {
  static const std::vector<std::pair<std::string, ModelConfig>> all = {
      {"tiny-llama", tiny_llama()},
      {"gpt2", gpt2(12, 12, 768)},
      {"gpt2-medium", gpt2(24, 16, 1024)},
      {"gpt2-large", gpt2(36, 20, 1280)},
      {"gpt2-xl", gpt2(48, 25, 1600)},
      {"gpt3-175b", gpt3_175b()},
      {"llama2-7b", llama2(32, 4096, 32, 32, 11008)},
      {"llama2-13b", llama2(40, 5120, 40, 40, 13824)},
      {"llama2-70b", llama2(80, 8192, 64, 8, 28672)},
      {"llama3-debug", torchtitan_debug()},
      {"llama3-8b", llama3(32, 4096, 32, 14336)},
      {"llama3-70b", llama3(80, 8192, 64, 28672)},
      {"llama3.1-8b", stretched(llama3(32, 4096, 32, 14336), 8)},
      {"llama3.1-70b", stretched(llama3(80, 8192, 64, 28672), 8)},
      {"llama3-405b", stretched(llama3(126, 16384, 128, 53248), 8)},
      {"llama3.2-1b", llama32(16, 2048, 32, 64)},
      {"llama3.2-3b", llama32(28, 3072, 24, 128)},
      {"qwen3-0.6b", qwen3_06b()},
      {"mixtral-8x7b", mixtral_8x7b()},
      {"gemma2-2b", gemma2(26, 2304, 8, 4, 9216)},
      {"gemma2-9b", gemma2(42, 3584, 16, 8, 14336)},
  };
  return all;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& [name, model] : presets()) names.push_back(name);
  return names;
}

std::optional<ModelConfig> find_preset(const std::string& name) {
  for (const auto& [known, model] : presets()) {
    if (known != name) continue;
    ModelConfig found = model;
    found.preset = name;
    return found;
  }
  return std::nullopt;
}

std::string torchtitan_preset(const std::string& name, const std::string& flavor) {
  static const std::map<std::pair<std::string, std::string>, std::string> known = {
      {{"llama2", "7B"}, "llama2-7b"},     {{"llama2", "13B"}, "llama2-13b"},
      {{"llama2", "70B"}, "llama2-70b"},   {{"llama3", "debugmodel"}, "llama3-debug"},
      {{"llama3", "8B"}, "llama3.1-8b"},  // torchtitan's have the RoPE of Llama 3.1
      {{"llama3", "70B"}, "llama3.1-70b"}, {{"llama3", "405B"}, "llama3-405b"},
      {{"qwen3", "0.6B"}, "qwen3-0.6b"},
  };
  const auto it = known.find({name, flavor});
  return it == known.end() ? "" : it->second;
}

}  // namespace trireme::config
