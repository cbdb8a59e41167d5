#include "trireme/planner/software.hpp"

#include "trireme/base/error.hpp"

namespace trireme::planner {
namespace {

const std::vector<Software>& known_software() {
  static const std::vector<Software> all = {
      // CUDA graphs, fused norms, activations and loss; main gradients within the products.
      {.name = "trireme",
       .attention_speed = 2.07,
       .layer_bytes = 82,
       .logit_bytes = 8,
       .layer_host_s = 0.2e-3,
       .step_host_s = 0.115e-3,
       .data_parallel_overlap = 0.8},
      // Transformer Engine with cuDNN's attention; tensor parallelism overlaps with products.
      {.name = "megatron",
       .attention_speed = 1.5,
       .layer_bytes = 99,
       .data_parallel_overlap = 0.7,
       .tensor_parallel_overlap = 0.93},
      // Eager, flash attention, float32 gradients beside those of autograd; nothing overlaps.
      {.name = "nanotron",
       .layer_bytes = 144,
       .logit_bytes = 24,
       .optimizer_bytes = 31,
       .accumulation_bytes = 10,
       .layer_host_s = 4.14e-3,
       .step_host_s = 71e-3,
       .data_parallel_calls = 3,
       .tensor_parallel_gathers = 5,
       .pipeline_contention_s = 3.34e-3,
       .kept_gradient_bytes = 6,
       .activations_between = 14,
       .activations_of_heads = 7.3,
       .activations_of_mlp = 10.8,
       .hidden_at_head = 10.6,
       .logits_kept = 5.9,
       .process_bytes = 0.5e9},
      // Of 2021: scores in memory, float16 gradients.
      {.name = "megatron-deepspeed",
       .flash_attention = false,
       .score_bytes = 53,
       .layer_bytes = 105,
       .logit_bytes = 24,
       .layer_host_s = 2.53e-3,
       .gradient_bytes = 2},
      // torchtitan, MosaicML, fms-fsdp.
      {.name = "fsdp",
       .layer_bytes = 296,
       .logit_bytes = 20,
       .layer_host_s = 3e-3,
       .step_host_s = 20e-3,
       .gradient_bytes = 2,
       .data_parallel_overlap = 0.06,
       .state_bytes = 10,
       .activations_between = 2.5,
       .activations_of_mlp = 4.6,
       .hidden_at_head = 36,
       .logits_kept = 4,
       .process_bytes = 0.64e9},
  };
  return all;
}

}  // namespace

const Software& software_named(std::string_view name) {
  std::string known;
  for (const Software& software : known_software()) {
    if (software.name == name) return software;
    known += (known.empty() ? "" : ", ") + software.name;
  }
  throw ConfigError(text("--software ", name, ": not known\n  fix: one of ", known));
}

std::vector<std::string> software_names() {
  std::vector<std::string> out;
  for (const Software& software : known_software()) out.push_back(software.name);
  return out;
}

}  // namespace trireme::planner
