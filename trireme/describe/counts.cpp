#include "trireme/describe/counts.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/describe/family_parameters.hpp"

namespace trireme::config {
namespace {

bool is_gated(const ModelConfig& m) { return family_of(m).mlp != MlpKind::gelu; }

/// The share of the tokens that a parameter sees: an expert sees those that are routed to it.
double visited_share(const ModelConfig& m, const Parameter& parameter) {
  if (!parameter.is_of_experts() || m.num_local_experts == 0) return 1;
  return static_cast<double>(m.num_experts_per_tok) / static_cast<double>(m.num_local_experts);
}

/// Weights of all layers that are used in matmuls with a token.
double active_weights(const ModelConfig& m) {
  double sum = 0;
  for (const SimilarLayers& similar : model_parameters(m).layers)
    for (const Parameter& parameter : similar.parameters)
      if (parameter.spec.shape.size() > 1)
        sum += static_cast<double>(similar.layers.size() * parameter.elements()) * visited_share(m, parameter);
  return sum;
}

/// Forward FLOPs per token for the attention scores and their product with the values, all layers.
double score_flops(const ModelConfig& m, std::int64_t seq_len, CountedScores which) {
  const double full = 4.0 * static_cast<double>(m.num_hidden_layers * query_width(m)) * static_cast<double>(seq_len);
  return which == CountedScores::full ? full : full / 2;
}

}  // namespace

bool is_countable(const ModelConfig& m) {
  const auto real = [](std::int64_t size) { return static_cast<double>(size); };
  const double h = real(m.hidden_size), width = std::max(real(m.intermediate_size), real(m.moe_intermediate_size));
  const double attention = 4 * h * real(std::max(m.num_attention_heads, m.num_key_value_heads)) * real(m.head_dim);
  const double mlps = std::max(1.0, real(m.num_local_experts)) * (3 * h * width + h);
  const double embeddings = h * (2 * real(m.vocab_size) + real(m.max_position_embeddings));
  return real(m.num_hidden_layers) * (attention + mlps) + embeddings <= real(kMaxParameters);
}

ParameterCounts count_parameters(const ModelConfig& m) {
  ParameterCounts n;
  const auto add = [&n](const Parameter& parameter, std::int64_t times) {
    const auto count = [&]() -> std::int64_t& {
      switch (parameter.kind) {
        case ParameterKind::embedding: return n.embedding;
        case ParameterKind::positions: return n.positions;
        case ParameterKind::attention: return n.attention;
        case ParameterKind::mlp:
        case ParameterKind::expert: return n.mlp;
        case ParameterKind::router: return n.router;
        case ParameterKind::norm: return n.norms;
        case ParameterKind::head: return n.head;
        case ParameterKind::other: break;
      }
      return n.own;
    };
    count() += times * parameter.elements();
  };
  const ModelParameters parameters = model_parameters(m);
  for (const Parameter& parameter : parameters.begin) add(parameter, 1);
  for (const SimilarLayers& similar : parameters.layers)
    for (const Parameter& parameter : similar.parameters) add(parameter, similar.layers.size());
  for (const Parameter& parameter : parameters.end) add(parameter, 1);
  return n;
}

std::int64_t active_parameters(const ModelConfig& m) {
  double idle = 0;
  for (const SimilarLayers& similar : model_parameters(m).layers)
    for (const Parameter& parameter : similar.parameters)
      idle += static_cast<double>(similar.layers.size() * parameter.elements()) * (1 - visited_share(m, parameter));
  return count_parameters(m).total() - std::llround(idle);
}

Recompute recompute_of(const std::string& mode) {
  if (mode == "selective") return Recompute::selective;
  return mode == "full" ? Recompute::full : Recompute::none;
}

double model_flops_per_token(const ModelConfig& m, std::int64_t seq_len, CountedScores which) {
  const double weights = active_weights(m) + static_cast<double>(m.vocab_size * m.hidden_size);
  return 6 * weights + 3 * score_flops(m, seq_len, which);
}

double recompute_flops_per_token(const ModelConfig& m, std::int64_t seq_len, CountedScores which, Recompute recompute) {
  if (recompute == Recompute::none) return 0;
  const double scores = score_flops(m, seq_len, which);
  if (recompute == Recompute::selective) return scores;
  return scores + 2.0 * active_weights(m);
}

double published_selective_flops_per_token(const ModelConfig& m, std::int64_t seq_len) {
  return 3 * score_flops(m, seq_len, CountedScores::full);
}

double sum(const std::vector<Bytes>& parts) {
  double total = 0;
  for (const Bytes& part : parts) total += part.bytes;
  return total;
}

int dtype_bytes(const std::string& dtype) {
  static const std::map<std::string, int> sizes = {{"float64", 8}, {"float32", 4}, {"bfloat16", 2}, {"float16", 2}};
  const auto it = sizes.find(dtype);
  require<ConfigError>(it != sizes.end(), "'", dtype, "' has no size: float64, float32, bfloat16 or float16");
  return it->second;
}

std::vector<Bytes> state_bytes(std::int64_t parameters, const PrecisionConfig& precision, const std::string& optimizer,
                               std::int64_t zero, std::int64_t shards, bool contiguous_gradients) {
  const auto n = static_cast<double>(parameters);
  const auto part = [&](std::int64_t from_stage) { return zero >= from_stage ? n / static_cast<double>(shards) : n; };
  const double moments = optimizer == "sgd" ? 1 : 2;
  const bool stays = !contiguous_gradients && precision.param != precision.accumulate;
  return {
      {"weights", part(3) * dtype_bytes(precision.param)},
      {"gradients", part(2) * dtype_bytes(precision.accumulate) + (stays ? n * dtype_bytes(precision.param) : 0)},
      {"master weights", precision.master == precision.param ? 0 : part(1) * dtype_bytes(precision.master)},
      {"moments", part(1) * moments * dtype_bytes(precision.states)},
  };
}

std::vector<Bytes> layer_activation_bytes(const ModelConfig& m, const ActivationShape& shape, Recompute recompute) {
  const double tokens = static_cast<double>(shape.seq_len * shape.micro_batch_size) / static_cast<double>(shape.cp);
  const auto t = static_cast<double>(shape.tp);
  const double element = shape.bytes_an_element;
  // Outside of the tensor-parallel matmuls a rank stores all tokens, or its shard of them with sequence parallelism.
  const double whole = tokens * element / (shape.sequence_parallel ? t : 1);
  const double cut = tokens * element / t;
  const double mask = tokens / (shape.sequence_parallel ? t : 1);  // a dropout mask takes one byte per element
  const auto h = static_cast<double>(m.hidden_size), q = static_cast<double>(query_width(m));
  const double kv = static_cast<double>(kv_width(m)) * std::max(1.0, t / static_cast<double>(m.num_key_value_heads));
  if (recompute == Recompute::full) return {{"layer input", whole * h}};

  const bool dropout = m.resid_pdrop > 0;
  std::vector<Bytes> parts = {
      {"norm inputs", 2 * whole * h}, {"qkv input", whole * h}, {"query, key, value", cut * (q + 2 * kv)},
      {"attention output", cut * q},  {"mlp input", whole * h},
  };
  if (family_of(m).post_norms) parts.push_back({"post-norm inputs", 2 * whole * h});
  if (dropout) parts.push_back({"dropout masks", 2 * mask * h});
  const double width = m.num_local_experts > 0
                           ? static_cast<double>(m.num_experts_per_tok) * static_cast<double>(expert_width(m))
                           : static_cast<double>(m.intermediate_size);
  parts.push_back({"mlp hidden", cut * width * (is_gated(m) ? (shape.fused_mlp ? 3 : 4) : 2)});
  if (shape.flash_attention) {
    parts.push_back({"log-sum-exp", tokens * static_cast<double>(m.num_attention_heads) * 4 / t});
  } else if (recompute == Recompute::none) {
    // Softmax output, and with dropout its mask and the result, for a heads x s x s scores.
    const double scores = tokens * static_cast<double>(shape.seq_len) * static_cast<double>(m.num_attention_heads) / t;
    parts.push_back({"attention scores", scores * (m.attention_dropout > 0 ? 2 * element + 1 : element)});
  }
  return parts;
}

double logits_bytes(const ModelConfig& m, const ActivationShape& shape) {
  const double tokens = static_cast<double>(shape.seq_len * shape.micro_batch_size) / static_cast<double>(shape.cp);
  return tokens * static_cast<double>(m.vocab_size) / static_cast<double>(shape.tp) * (shape.bytes_an_element + 4);
}

}  // namespace trireme::config
