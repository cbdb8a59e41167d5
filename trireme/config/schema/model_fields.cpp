// The keys of [model].
#include "trireme/config/schema/choices.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/config/schema/field_makers.hpp"

namespace trireme::config {

std::vector<Field> model_fields(ModelConfig& m) {
  return {
      {"model.preset", &m.preset, "a model by name; any key below overrides one of its sizes"},
      {"model.hf", &m.hf, "a Hugging Face config.json, or the folder with it"},
      one_of("model.model_type", &m.model_type, "family", family_names()),
      {"model.hidden_size", &m.hidden_size, "width of the residual stream", 0, kMaxSize},
      {"model.num_hidden_layers", &m.num_hidden_layers, "transformer layers", 0, kMaxDegree},
      {"model.num_attention_heads", &m.num_attention_heads, "query heads", 0, kMaxDegree},
      {"model.num_key_value_heads", &m.num_key_value_heads, "key and value heads; 0 = num_attention_heads", 0,
       kMaxDegree},
      {"model.head_dim", &m.head_dim, "width of a head; 0 = hidden_size / num_attention_heads", 0, kMaxDegree},
      {"model.intermediate_size", &m.intermediate_size, "width of the MLP", 0, kMaxSize},
      {"model.vocab_size", &m.vocab_size, "vocabulary size; 0 = that of the tokenizer", 0, kMaxSize},
      {"model.vocab_multiple", &m.vocab_multiple, "a vocab_size from the tokenizer is rounded up to a multiple of this",
       1, kMaxSize},
      {"model.max_position_embeddings", &m.max_position_embeddings, "longest sequence", 1, kMaxSize},
      one_of("model.hidden_act", &m.hidden_act, "activation of the MLP",
             {"silu", "gelu", "gelu_new", "gelu_pytorch_tanh"}),
      {"model.norm_eps", &m.norm_eps, "epsilon of RMSNorm or LayerNorm", 0, 1, true},
      {"model.rope_theta", &m.rope_theta, "base of the rotary embedding", 0, 1e15, true},
      {"model.tie_word_embeddings", &m.tie_word_embeddings, "head and embedding share their weight"},
      {"model.attention_bias", &m.attention_bias,
       "bias on the query, key and value projections (and the output's, for llama)"},
      {"model.qk_norm", &m.qk_norm, "RMSNorm on query and key heads"},
      {"model.sliding_window", &m.sliding_window, "attention looks back this far; 0 = all the way", 0, kMaxSize},
      {"model.sliding_window_pattern", &m.sliding_window_pattern,
       "every Nth layer attends to all tokens before it, the others look back by sliding_window; 0 = all have the "
       "window",
       0, kMaxDegree},
      {"model.query_pre_attn_scalar", &m.query_pre_attn_scalar,
       "attention scores are divided by the square root of this; 0 = head_dim", 0, kMaxSize},
      {"model.attn_logit_softcapping", &m.attn_logit_softcapping,
       "attention scores s become cap x tanh(s / cap); 0 = no cap", 0, 1e9},
      {"model.final_logit_softcapping", &m.final_logit_softcapping, "logits l become cap x tanh(l / cap); 0 = no cap",
       0, 1e9},
      {"model.num_local_experts", &m.num_local_experts, "experts per layer; 0 = a dense MLP", 0, kMaxDegree},
      {"model.num_experts_per_tok", &m.num_experts_per_tok, "experts per token", 1, kMaxDegree},
      {"model.moe_intermediate_size", &m.moe_intermediate_size, "width of an expert; 0 = intermediate_size", 0,
       kMaxSize},
      {"model.shared_expert_intermediate_size", &m.shared_expert_intermediate_size,
       "width of the shared expert, which every token uses; 0 = none", 0, kMaxSize},
      one_of("model.scoring_func", &m.scoring_func, "scoring function of router logits", router_scoring_words()),
      {"model.norm_topk_prob", &m.norm_topk_prob, "normalize the expert weights of a token to a sum of 1"},
      {"model.routed_scaling_factor", &m.routed_scaling_factor, "multiplies the weights of the experts", 0, 1e6, true},
      {"model.expert_capacity_factor", &m.expert_capacity_factor,
       "an expert takes at most this many times the mean number of tokens of a sample; 0 = all", 0, 1e6},
      {"model.router_aux_loss_coef", &m.router_aux_loss_coef, "weight of the balancing loss", 0, 1e6},
      one_of("model.router_aux_loss_type", &m.router_aux_loss_type,
             "balance of each layer and sample, or of all layers and samples of a microbatch as in transformers",
             router_balance_words()),
      {"model.router_aux_loss_samples", &m.router_aux_loss_samples,
       "samples that the loss of type hf is computed over: micro_batch_size x dp; 0 = that of this layout", 0,
       kMaxSize},
      {"model.router_z_loss_coef", &m.router_z_loss_coef, "weight of the squared log-sum-exp of router logits", 0, 1e6},
      {"model.router_bias_update_rate", &m.router_bias_update_rate,
       "change per step of a bias that steers tokens to experts with few of them, as in DeepSeek-V3; 0 = no bias", 0,
       1e3},
      {"model.initializer_range", &m.initializer_range, "standard deviation of the initial weights", 0, 1e3},
      one_of("model.initializer", &m.initializer,
             "what scales the standard deviation of weights that write to the residual stream: nothing (normal), 1 / "
             "sqrt(2 layers) (scaled), 1 / sqrt(2 (layer + 1)) with layers from 0 (depth-scaled); torchtitan = that, "
             "for the up projection too, embedding 1, head 1 / sqrt(hidden_size) up to 3 of it; auto = scaled for "
             "gpt2, else normal",
             initializer_words()),
      dropout("model.embd_pdrop", &m.embd_pdrop, "dropout after the embedding"),
      dropout("model.resid_pdrop", &m.resid_pdrop, "dropout before each residual addition"),
      dropout("model.attention_dropout", &m.attention_dropout, "dropout of attention weights"),
      one_of("model.dtype", &m.dtype,
             "dtype of the computation; auto = bfloat16 where the device multiplies it natively, else float32",
             kDtypes),
      {"model.init", &m.init,
       "\"random\", or weights that exist: \"hf:FOLDER\" of a Hugging Face folder, \"checkpoint:FOLDER\" of a "
       "checkpoint "
       "of a run"},
      // Last in [model]: TOML requires a table's own keys before its subtables.
      one_of("model.rope_scaling.rope_type", &m.rope_scaling.rope_type, "empty = plain", rope_kind_words()),
      {"model.rope_scaling.factor", &m.rope_scaling.factor, "factor by which sequences get longer", 0, 1e6, true},
      {"model.rope_scaling.low_freq_factor", &m.rope_scaling.low_freq_factor, "llama3 only", 0, 1e6, true},
      {"model.rope_scaling.high_freq_factor", &m.rope_scaling.high_freq_factor, "llama3 only", 0, 1e6, true},
      {"model.rope_scaling.original_max_position_embeddings", &m.rope_scaling.original_max_position_embeddings,
       "longest sequence before scaling, for llama3 and yarn; 0 = max_position_embeddings", 0, kMaxSize},
      {"model.rope_scaling.beta_fast", &m.rope_scaling.beta_fast,
       "yarn only: frequencies with more turns than this are unchanged", 0, 1e6, true},
      {"model.rope_scaling.beta_slow", &m.rope_scaling.beta_slow,
       "yarn only: frequencies with fewer turns than this are divided by factor", 0, 1e6, true},
      {"model.rope_scaling.attention_factor", &m.rope_scaling.attention_factor,
       "yarn only: multiplies cos and sin; 0 = from factor and mscale", 0, 1e6},
      {"model.rope_scaling.mscale", &m.rope_scaling.mscale, "yarn only; 0 = not given", 0, 1e6},
      {"model.rope_scaling.mscale_all_dim", &m.rope_scaling.mscale_all_dim, "yarn only; 0 = not given", 0, 1e6},
      {"model.rope_scaling.truncate", &m.rope_scaling.truncate, "yarn only: round its range to whole dims"},
  };
}

}  // namespace trireme::config
