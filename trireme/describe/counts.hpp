#pragma once
// Parameter counts, FLOPs per token, and bytes of states and activations of a model config. Formulas, no measurements.
//
// Symbols: L layers, h hidden_size, a heads, k key-value heads, d head_dim, f MLP width, V vocabulary, s sequence
// length, b sequences per microbatch, t = tp, c = cp.
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/config/schema/config.hpp"

namespace trireme::config {

// --- parameters

struct ParameterCounts {
  std::int64_t embedding = 0;  // V h
  std::int64_t positions = 0;  // learned positions
  std::int64_t attention = 0;  // all layers, including biases
  std::int64_t mlp = 0;        // all layers, all experts, including biases
  std::int64_t router = 0;
  std::int64_t norms = 0;
  std::int64_t head = 0;  // 0 if tied to the embedding
  std::int64_t own = 0;   // all layers of a registered family, instead of attention, mlp, router and their norms

  std::int64_t total() const { return embedding + positions + attention + mlp + router + norms + head + own; }
};
/// Keeps the counts below within 64 bits: validate() rejects a model with more than kMaxParameters.
constexpr std::int64_t kMaxParameters = 1'000'000'000'000'000;
bool is_countable(const ModelConfig& model);

/// Expects derived values (derive.hpp). Vocabulary padding is not counted.
ParameterCounts count_parameters(const ModelConfig& model);
/// Parameters used per token: all except the experts it is not routed to.
std::int64_t active_parameters(const ModelConfig& model);

// --- FLOPs

enum class CountedScores { full, causal };  // all s x s scores, or those that a causal kernel computes
enum class Recompute { none, selective, full };
Recompute recompute_of(const std::string& mode);

/// Forward and backward per token: 6 per weight of a matmul (none for the embedding lookup; only the router and the
/// selected experts) + 12 L h s for full attention, half of that for causal. Here h means a d.
double model_flops_per_token(const ModelConfig& model, std::int64_t seq_len, CountedScores which);

/// FLOPs added by recomputation. Full: the forward of all layers once more. Selective: the forward of the attention
/// scores once more.
double recompute_flops_per_token(const ModelConfig& model, std::int64_t seq_len, CountedScores which,
                                 Recompute recompute);

/// The FLOPs of selective recomputation by Korthikanti et al. (arXiv 2205.05198, appendix A): 12 L h s, forward and
/// backward of the scores. Their published overheads (2.7 % for GPT-3 175B) follow from it; only a third of that is
/// actually recomputed.
double published_selective_flops_per_token(const ModelConfig& model, std::int64_t seq_len);

// --- bytes

struct Bytes {
  std::string name;
  double bytes;
};
double sum(const std::vector<Bytes>& parts);

int dtype_bytes(const std::string& dtype);

/// Weights, gradients, master weights and moments of `parameters` elements on one rank, each by name, with ZeRO over
/// `shards` ranks. Expects precision.param to be an actual dtype, not "auto". Master weights exist only if their dtype
/// differs from that of the weights; gradients are kept in precision.accumulate. Without `contiguous_gradients`, full
/// gradients of a different dtype exist in addition until the end of backward.
std::vector<Bytes> state_bytes(std::int64_t parameters, const PrecisionConfig& precision, const std::string& optimizer,
                               std::int64_t zero, std::int64_t shards, bool contiguous_gradients = true);

struct ActivationShape {
  std::int64_t seq_len = 1;
  std::int64_t micro_batch_size = 1;
  std::int64_t tp = 1;
  std::int64_t cp = 1;
  bool sequence_parallel = true;
  bool flash_attention = true;  // scores are never stored
  bool fused_mlp = true;        // SwiGLU stores gate, up and product, not the activated gate
  int bytes_an_element = 2;
};
/// Bytes that one layer stores from forward to backward on one rank, by name.
std::vector<Bytes> layer_activation_bytes(const ModelConfig& model, const ActivationShape& shape, Recompute recompute);

/// Logits of a microbatch: in the compute dtype and once in float32, sharded over tp. A chunked loss never holds them
/// all at once.
double logits_bytes(const ModelConfig& model, const ActivationShape& shape);

}  // namespace trireme::config
