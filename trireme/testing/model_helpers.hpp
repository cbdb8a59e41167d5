#pragma once
// Helpers for tests of whole models.
#include <string>

#include "trireme/config/schema/config.hpp"

namespace trireme {

/// Two layers of a family, small enough to compare every gradient.
inline ModelConfig small_model(const std::string& family) {
  ModelConfig m;
  m.model_type = family;
  m.hidden_size = 16;
  m.num_hidden_layers = 2;
  m.num_attention_heads = 4;
  m.num_key_value_heads = family == "gpt2" ? 4 : 2;
  m.head_dim = 4;
  m.intermediate_size = 24;
  m.vocab_size = 37;
  m.max_position_embeddings = 8;
  m.tie_word_embeddings = family == "gpt2";
  m.qk_norm = family.starts_with("qwen3");
  if (family == "mixtral" || family == "qwen3_moe") m.num_local_experts = 4;
  if (family == "mixtral") m.moe_intermediate_size = m.intermediate_size;
  if (family == "qwen3_moe") m.moe_intermediate_size = 8;
  m.hidden_act = family == "gpt2" ? "gelu_new" : family == "gemma2" ? "gelu_pytorch_tanh" : "silu";
  if (family == "gemma2") {
    m.tie_word_embeddings = true;
    m.sliding_window = 3;
    m.sliding_window_pattern = 2;
    m.query_pre_attn_scalar = 6;
    m.attn_logit_softcapping = 2;  // small, so that they change every number
    m.final_logit_softcapping = 3;
  }
  return m;
}

}  // namespace trireme
