#pragma once
// What a model config implies: parameters, FLOPs of a token, bytes of states and activations. Formulas, no
// measurements.
//
// Letters: L layers, h hidden_size, a heads, k key-value heads, d head_dim, f MLP width, V vocabulary, s sequence, b
// sequences of a microbatch, t = tp, c = cp.
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/config/schema/config.hpp"

namespace trireme::config {

// --- parameters
// -----------------------------------------------------------------------------------------------------------

struct ParameterCounts {
  std::int64_t embedding = 0;  // V h
  std::int64_t positions = 0;  // learned ones
  std::int64_t attention = 0;  // all layers, with biases
  std::int64_t mlp = 0;        // all layers, all experts, with biases
  std::int64_t router = 0;
  std::int64_t norms = 0;
  std::int64_t head = 0;  // 0 when tied to the embedding

  std::int64_t total() const { return embedding + positions + attention + mlp + router + norms + head; }
};
/// Whether the counts below stay within 64 bits: validate() refuses a model of more than kMaxParameters.
constexpr std::int64_t kMaxParameters = 1'000'000'000'000'000;
bool is_countable(const ModelConfig& model);

/// Expects derived values (derive.hpp). A padded vocabulary is not counted.
ParameterCounts count_parameters(const ModelConfig& model);
/// Parameters that a token meets: all but the experts it does not visit.
std::int64_t active_parameters(const ModelConfig& model);

// --- FLOPs
// ----------------------------------------------------------------------------------------------------------------

enum class CountedScores { full, causal };  // all s x s scores, or those that a causal kernel computes
enum class Recompute { none, selective, full };
Recompute recompute_of(const std::string& mode);

/// Forward and backward of one token: 6 for each weight of a matrix product (embedding look-up none, router and visited
/// experts only) + 12 L h s for full attention, half of it for causal. h stands for a d.
double model_flops_per_token(const ModelConfig& model, std::int64_t seq_len, CountedScores which);

/// What recompute adds. Full: the layers' forward once more. Selective: the forward of the attention scores once more.
double recompute_flops_per_token(const ModelConfig& model, std::int64_t seq_len, CountedScores which,
                                 Recompute recompute);

/// What Korthikanti et al. (arXiv 2205.05198, appendix A) count for selective recompute: 12 L h s, forward and backward
/// of the scores. Their published overheads (2.7 % for GPT-3 175B) follow from it; what is executed again is a third of
/// that.
double published_selective_flops_per_token(const ModelConfig& model, std::int64_t seq_len);

// --- bytes
// ----------------------------------------------------------------------------------------------------------------

struct Bytes {
  std::string name;
  double bytes;
};
double sum(const std::vector<Bytes>& parts);

int dtype_bytes(const std::string& dtype);

/// Weights, gradients, master weights and moments of `parameters` elements on one rank, each by name, with ZeRO over
/// `shards` ranks. Expects precision.param to be a real dtype, not "auto". A master copy is only kept when it is of
/// another dtype than the weights; gradients are kept in precision.accumulate. Without `contiguous_gradients` those of
/// another dtype than precision.accumulate stand beside it, whole, until backward is over.
std::vector<Bytes> state_bytes(std::int64_t parameters, const PrecisionConfig& precision, const std::string& optimizer,
                               std::int64_t zero, std::int64_t shards, bool contiguous_gradients = true);

struct ActivationShape {
  std::int64_t seq_len = 1;
  std::int64_t micro_batch_size = 1;
  std::int64_t tp = 1;
  std::int64_t cp = 1;
  bool sequence_parallel = true;
  bool flash_attention = true;  // scores are never stored
  bool fused_mlp = true;        // SwiGLU keeps gate, up and product, not the activation of the gate
  int bytes_an_element = 2;
};
/// What one layer keeps from forward to backward on one rank, by name.
std::vector<Bytes> layer_activation_bytes(const ModelConfig& model, const ActivationShape& shape, Recompute recompute);

/// Logits of a microbatch: in the compute dtype and once in float32, cut over tp. A chunked loss never holds them at
/// once.
double logits_bytes(const ModelConfig& model, const ActivationShape& shape);

}  // namespace trireme::config
