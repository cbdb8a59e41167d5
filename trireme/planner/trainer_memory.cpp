#include "trireme/planner/trainer_memory.hpp"

#include <algorithm>

#include "trireme/planner/real.hpp"
#include "trireme/schedule/generate.hpp"

namespace trireme::planner {
namespace {

/// Microbatches of a stage that wait for backward on the first rank.
double live_microbatches(const StepWork& w) {
  using enum schedule::ScheduleKind;
  const double all = real(w.microbatches);
  if (w.pp == 1) return 1;
  switch (schedule::parse_schedule_kind(w.schedule)) {
    case all_forward_all_backward: return all;
    case interleaved: return std::min(all, w.pp * (1 + (w.pp - 1.0) / (w.pp * w.virtual_stages)));
    case dualpipe_v: return std::min(all, w.pp + 1.0);
    default: return std::min(all, static_cast<double>(w.pp));
  }
}

}  // namespace

TrainerMemory predict_trainer_memory(const StepWork& w, const Software& software) {
  const double h = real(w.hidden), t = real(w.seq_len) * real(w.micro_batch) / w.cp;
  const auto [dense, experts] = parameters_of_rank(w);
  const double shards = w.dp * w.cp / static_cast<double>(w.replicate), expert_shards = std::max(1.0, shards / w.ep);
  TrainerMemory out;
  for (const auto& [elements, ranks] : {std::pair{dense, shards}, std::pair{experts, expert_shards}}) {
    const double whole_weights = w.zero == 3 ? ranks : 1, whole_gradients = w.zero >= 2 ? ranks : 1,
                 states = w.zero >= 1 ? ranks : 1;
    out.states +=
        elements * (2 / whole_weights + software.kept_gradient_bytes / whole_gradients + software.state_bytes / states);
  }
  const double layers = real(w.most_layers);
  if (w.zero == 3) out.states += 2 * 2 * (dense + experts) / std::max(1.0, layers);  // two layers are whole

  const double tp = w.tp, between = w.sequence_parallel ? tp : 1;
  const double kv = 2 * real(w.kv_heads * w.head_dim);
  const double width = w.experts > 0 ? real(w.experts_per_token * w.expert_width + w.shared_width) : real(w.mlp_width);
  double layer = t * (software.activations_between * h / between + software.activations_of_heads * (h + kv / 2) / tp +
                      software.activations_of_mlp * width * (w.mlp_matrices == 3 ? 1 : 2.0 / 3) / tp);
  if (!software.flash_attention) layer += 5 * t * real(w.seq_len) * real(w.heads) / tp;
  if (w.recompute == config::Recompute::full)
    out.activations = layers * 2 * t * h / between * live_microbatches(w) + layer;
  else
    out.activations = layers * layer * live_microbatches(w) * (w.recompute == config::Recompute::selective ? 0.7 : 1);
  // The head is on the last stage, the most activations on the first.
  const double head = t * (software.logits_kept * real(w.vocab) / tp + software.hidden_at_head * h);
  if (w.pp == 1)
    out.logits = head;
  else
    out.activations = std::max(out.activations, real(w.last_layers) * layer + head);
  out.process = software.process_bytes;
  return out;
}

}  // namespace trireme::planner
