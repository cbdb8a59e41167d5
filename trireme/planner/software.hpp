#pragma once
// What differs between trainers, for the time and the memory of a step: which kernels are fused, what overlaps, how
// fast the host is.
#include <string>
#include <string_view>
#include <vector>

namespace trireme::planner {

/// Facts about a trainer. Where they are from, and which of them were fitted to its runs: docs/planning.md.
struct Software {
  std::string name;

  bool flash_attention = true;       // scores are never in memory, and only those below the diagonal are computed
  double attention_speed = 1;        // of flash attention, next to FlashAttention 2
  double score_bytes = 0;            // without flash attention: memory traffic per score, both directions
  double layer_bytes = 100;          // memory traffic of a layer per token and feature beside products, both directions
  double logit_bytes = 16;           // the same per token and entry of the vocabulary
  double optimizer_bytes = 28;       // per updated parameter
  double accumulation_bytes = 0;     // per parameter and microbatch, if gradients are added up beside the products
  double layer_host_s = 0.5e-3;      // in which the host enqueues forward and backward of a layer
  double microbatch_host_s = 0;      // per microbatch, beside layers: embedding, loss
  double step_host_s = 10e-3;        // per step, beside layers: data, logs, synchronization
  double gradient_bytes = 4;         // of a gradient that travels
  int data_parallel_calls = 1;       // in which the gradients of a step travel
  double data_parallel_overlap = 0;  // part of their traffic that backward hides at most
  int tensor_parallel_gathers = 4;   // all-gathers and reduce-scatters of a layer in backward (4 in forward)
  double tensor_parallel_overlap = 0;
  /// Several hosts with a pipeline: a layer waits so long for each other rank of its tensor-parallel group.
  double pipeline_contention_s = 0;

  // Memory of a rank, besides weights of two bytes.
  double kept_gradient_bytes = 4, state_bytes = 12;  // per parameter; states with the master weights
  /// Bytes kept for backward per token and feature of a layer: in the residual stream and its norms, of the projections
  /// of attention, and of the MLP's width.
  double activations_between = 8, activations_of_heads = 6, activations_of_mlp = 6;
  double hidden_at_head = 8;     // bytes per token and feature, once: around the head, and in the widest backward
  double logits_kept = 2;        // bytes per token and entry of the vocabulary
  double process_bytes = 1.5e9;  // context, libraries, buffers of communication
};

/// ConfigError that lists the names, for one that is not known.
const Software& software_named(std::string_view name);
std::vector<std::string> software_names();

}  // namespace trireme::planner
