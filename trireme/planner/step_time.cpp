#include "trireme/planner/step_time.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <tuple>

#include "trireme/config/read/derive.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/describe/pipeline.hpp"
#include "trireme/planner/real.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/schedule/replay.hpp"

// t tokens of a microbatch on a rank, h hidden, f MLP width, V vocabulary; a product is m x k times k x n.
namespace trireme::planner {
namespace {

constexpr double kHalfHead = 32;  // flash attention is slower with smaller heads; kernels are timed with 128
constexpr double kBackwardOfProducts = 2, kBackwardOfAttention = 2.5;  // times forward
/// Part of a layer's memory-bound work that tensor parallelism shares without sequence parallelism, too.
constexpr double kAlwaysShared = 2.0 / 3;

/// Microbatches' worth of time that a rank waits in a step.
double idle_microbatches(const StepWork& w) {
  using enum schedule::ScheduleKind;
  if (w.pp == 1) return 0;
  const double ramp = w.pp - 1;
  const schedule::ScheduleKind kind = schedule::parse_schedule_kind(w.schedule);
  if (kind == all_forward_all_backward || kind == one_f_one_b) return ramp;
  if (kind == interleaved) return ramp / w.virtual_stages;
  // Those that split backward: replayed. From twice as many microbatches as stages the bubble is the same.
  const int microbatches = static_cast<int>(std::min<std::int64_t>(w.microbatches, 2 * w.pp));
  static std::mutex mutex;
  static std::map<std::tuple<schedule::ScheduleKind, int, int>, double> known;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [place, is_new] = known.try_emplace({kind, w.pp, microbatches});
  if (is_new)
    place->second =
        schedule::replay(schedule::make_schedule(kind, w.pp, microbatches)).makespan / 3 - microbatches;  // F + I + W
  return place->second;
}

/// Times of a rank. Ranks are numbered tp first, then cp, dp and pp.
class Rank {
 public:
  Rank(const StepWork& work, const Machine& machine, const Software& software)
      : w_(work),
        machine_(machine),
        per_host_(machine.per_host()),
        software_(software),
        tokens_(real(work.micro_batch) * real(work.seq_len) / work.cp) {}

  StepTime step() const {
    const Layer layer = time_of_layer();
    const double head = time_of_head();
    const double layers = real(w_.layers), microbatches = real(w_.microbatches);
    // The stage that takes longest sets the pace; the others decide how long it takes to fill and drain the pipeline.
    const double most = real(w_.most_layers) * layer.total(), last = real(w_.last_layers) * layer.total() + head;
    const bool head_is_slowest = last > most;
    const double here = head_is_slowest ? real(w_.last_layers) : real(w_.most_layers), slowest = std::max(most, last);
    StepTime out;
    const auto [dense, experts] = parameters_of_rank(w_);
    const double times = here * microbatches;
    out.products = times * layer.products;
    out.attention = times * layer.attention;
    out.memory_bound =
        times * layer.memory_bound + microbatches * copy(software_.accumulation_bytes * (dense + experts));
    out.tensor_parallel = times * layer.tensor_parallel;
    out.context_parallel = times * layer.context_parallel;
    out.expert_parallel = times * layer.expert_parallel;
    out.host = times * layer.host + microbatches * software_.microbatch_host_s;
    out.head = head_is_slowest || w_.pp == 1 ? microbatches * head : 0;
    if (w_.pp > 1) {
      const double others = layers * layer.total() + head - slowest;
      out.bubble = others * idle_microbatches(w_) / (w_.pp - 1);
      const double bytes = tokens_ * real(w_.hidden) * w_.element_bytes / (w_.sequence_parallel ? w_.tp : 1);
      const bool same_host = 2 * w_.dp * w_.cp * w_.tp <= per_host_;
      const int chunks = schedule::chunks_per_rank(schedule::parse_schedule_kind(w_.schedule), w_.virtual_stages);
      out.transfers = 2 * (microbatches + w_.pp - 1) * chunks * send_seconds(bytes, same_host, machine_);
    }
    const double compute = microbatches * slowest;
    out.data_parallel = data_parallel(compute, compute / microbatches * 2 / 3);
    out.optimizer = optimizer();
    const double hosts = std::max(1.0, static_cast<double>(w_.gpus()) / per_host_);
    out.other = software_.step_host_s + out.total() * machine_.reach.straggler * std::log2(hosts);
    return out;
  }

 private:
  struct Layer {
    double products = 0, attention = 0, memory_bound = 0, tensor_parallel = 0, context_parallel = 0,
           expert_parallel = 0, host = 0;
    double on_gpu() const {
      return products + attention + memory_bound + tensor_parallel + context_parallel + expert_parallel;
    }
    double total() const { return on_gpu() + host; }
  };

  double product(double m, double n, double k, bool in_fp8) const {
    const double speed =
        machine_.gpu.peak_flops * machine_.gpu.product_efficiency * (in_fp8 ? machine_.reach.fp8_gain : 1);
    return 2 * m * n * k / speed * (1 + machine_.reach.half_rows / m) * (1 + machine_.reach.half_columns / n) *
           (1 + machine_.reach.half_depth / k);
  }
  double copy(double bytes) const { return bytes / (machine_.gpu.memory_bandwidth * machine_.reach.memory); }

  /// Of the ranks along an axis: `stride` ranks lie between two of them.
  RankGroup group(int size, int stride) const {
    const int slots = std::max(1, per_host_ / std::max(1, stride));
    // Neighbours: where a host has no room for whole groups, some of them are spread over two hosts.
    return {.size = size, .in_host = stride == 1 && size < slots ? std::gcd(slots, size) : std::min(slots, size)};
  }
  RankGroup tensor_group() const { return group(w_.tp, 1); }
  /// Ranks that have the same parameters: neighbours share them, `replicate` groups of them have all.
  struct Shared {
    RankGroup all, shards, replicas;
  };
  Shared shared(int stride, int size) const {
    const int all = std::max(1, size), replicas = std::gcd(w_.replicate, all), shards = all / replicas;
    return {group(all, stride), group(shards, stride), group(replicas, stride * shards)};
  }

  /// Forward of the linear layers of one layer.
  double forward_products() const {
    const double h = real(w_.hidden), q = real(w_.heads * w_.head_dim) / w_.tp,
                 kv = 2 * std::max(1.0, real(w_.kv_heads) / w_.tp) * real(w_.head_dim);
    double out = product(tokens_, q + kv, h, w_.fp8) + product(tokens_, h, q, w_.fp8);
    const auto mlp = [&](double rows, double width, double count) {
      if (width == 0) return;
      out += count * (product(rows, real(w_.mlp_matrices - 1) * width / w_.tp, h, w_.fp8) +
                      product(rows, h, width / w_.tp, w_.fp8));
    };
    if (w_.experts == 0) {
      mlp(tokens_, real(w_.mlp_width), 1);
    } else {
      const double own = std::max(1.0, real(w_.experts) / w_.ep);
      mlp(tokens_ * real(w_.experts_per_token) / own, real(w_.expert_width), own);
      mlp(tokens_, real(w_.shared_width), 1);
      out += product(tokens_, real(w_.experts), h, false);
    }
    return out;
  }

  /// Forward of the scores and their products with the values, and what they move through memory.
  double forward_attention() const {
    const double width = real(w_.heads * w_.head_dim) / w_.tp, s = real(w_.seq_len);
    const double seen = !software_.flash_attention ? s : w_.window > 0 ? std::min(s / 2, real(w_.window)) : s / 2;
    const double flops = 4 * tokens_ * seen * width;
    const double speed = machine_.gpu.peak_flops * machine_.gpu.product_efficiency;
    if (software_.flash_attention)
      return flops / (speed * machine_.reach.attention * software_.attention_speed) *
             (1 + kHalfHead / real(w_.head_dim)) / (1 + kHalfHead / 128);
    const double scores = tokens_ * s * real(w_.heads) / w_.tp;
    return flops / speed * (1 + machine_.reach.half_depth / real(w_.head_dim)) +
           copy(scores * software_.score_bytes / 3);
  }

  /// Forward and backward of a layer, and what is computed again.
  Layer time_of_layer() const {
    Layer out;
    const bool again = w_.recompute == config::Recompute::full;
    const double backward_attention = software_.flash_attention ? kBackwardOfAttention : kBackwardOfProducts;
    const bool scores_again = again || (w_.recompute == config::Recompute::selective && !software_.flash_attention);
    out.products = forward_products() * (1 + kBackwardOfProducts + (again ? 1 : 0));
    out.attention = forward_attention() * (1 + backward_attention + (scores_again ? 1 : 0));
    const double shared = kAlwaysShared / w_.tp + (1 - kAlwaysShared) / (w_.sequence_parallel ? w_.tp : 1);
    double features = real(w_.hidden);
    if (w_.experts > 0) features += real(w_.experts_per_token) * (real(w_.hidden) + real(w_.expert_width)) / 4;
    out.memory_bound =
        copy(software_.layer_bytes * (w_.fp8 ? machine_.reach.fp8_traffic : 1) * tokens_ * features * shared) *
        (again                                          ? 4.0 / 3
         : w_.recompute == config::Recompute::selective ? 1.15
                                                        : 1);
    const double hidden_bytes = tokens_ * real(w_.hidden) * w_.element_bytes;
    if (w_.tp > 1) {
      const int gathers = 4 + software_.tensor_parallel_gathers + (again ? 4 : 0);
      out.tensor_parallel =
          gathers * ring_seconds(hidden_bytes, tensor_group(), machine_) * (1 - software_.tensor_parallel_overlap);
    }
    if (w_.cp > 1) {
      // Keys and values go round; backward sends them again, and their gradients. Hidden by attention, as far as it is
      // as long.
      const double kv = 2 * tokens_ * real(w_.kv_heads * w_.head_dim) / std::min<double>(w_.tp, real(w_.kv_heads)) *
                        w_.element_bytes * w_.cp;
      const double ring = (again ? 4 : 3) * ring_seconds(kv, group(w_.cp, w_.tp), machine_);
      out.context_parallel = std::max(ring - out.attention, ring / w_.cp);
    }
    if (w_.experts > 0 && w_.ep > 1) {
      const double bytes = hidden_bytes * real(w_.experts_per_token) / (w_.sequence_parallel ? w_.tp : 1);
      out.expert_parallel = (again ? 6 : 4) * all_to_all_seconds(bytes, group(w_.ep, w_.tp), machine_);
    }
    double host = software_.layer_host_s * (again ? 4.0 / 3 : 1);
    if (w_.pp > 1 && w_.gpus() > per_host_) host += software_.pipeline_contention_s * (w_.tp - 1);
    out.host = std::max(0.0, host - out.on_gpu());
    return out;
  }

  double time_of_head() const {
    const double entries = real(w_.vocab) / w_.tp;
    return (1 + kBackwardOfProducts) * product(tokens_, entries, real(w_.hidden), false) +
           copy(software_.logit_bytes * tokens_ * entries);
  }

  /// What backward does not hide of the traffic of gradients, and of parameters. `compute`: of all microbatches.
  double data_parallel(double compute, double last_backward) const {
    const auto [dense, experts] = parameters_of_rank(w_);
    const double microbatches = real(w_.microbatches);
    double seconds = 0;
    for (const auto& [elements, ranks] : {std::pair{dense, shared(w_.tp, w_.dp * w_.cp)},
                                          std::pair{experts, shared(w_.tp * w_.ep, w_.dp * w_.cp / w_.ep)}}) {
      if (elements == 0 || ranks.all.size == 1) continue;
      const double calls = software_.data_parallel_calls, sent = elements * software_.gradient_bytes / calls;
      const double gather = calls * ring_seconds(elements * w_.element_bytes / calls, ranks.shards, machine_),
                   reduce = calls * (ring_seconds(sent, ranks.shards, machine_) +
                                     all_reduce_seconds(sent / ranks.shards.size, ranks.replicas, machine_));
      switch (w_.zero) {
        case 0: seconds += calls * all_reduce_seconds(sent, ranks.all, machine_); break;
        case 1: seconds += reduce + gather; break;
        case 2: seconds += microbatches * reduce + gather; break;
        default: seconds += microbatches * ((w_.reshards ? 2 : 1) * gather + reduce);
      }
    }
    const double window = w_.zero >= 2 ? compute : last_backward;
    return seconds - std::min(software_.data_parallel_overlap * seconds, window);
  }

  double optimizer() const {
    const auto [dense, experts] = parameters_of_rank(w_);
    if (w_.zero == 0) return copy(software_.optimizer_bytes * (dense + experts));
    return copy(software_.optimizer_bytes * (dense / shared(w_.tp, w_.dp * w_.cp).shards.size +
                                             experts / shared(w_.tp * w_.ep, w_.dp * w_.cp / w_.ep).shards.size));
  }

  const StepWork& w_;
  const Machine& machine_;
  const int per_host_;
  const Software& software_;
  const double tokens_;
};

}  // namespace

std::pair<double, double> parameters_of_rank(const StepWork& w) {
  const double h = real(w.hidden);
  double layer = h * real(2 * w.heads + 2 * w.kv_heads) * real(w.head_dim);
  layer += real(w.mlp_matrices) * h * real(w.experts > 0 ? w.shared_width : w.mlp_width);
  const double experts = real(w.experts) * real(w.mlp_matrices) * h * real(w.expert_width) / w.ep;
  const schedule::ScheduleKind kind = schedule::parse_schedule_kind(w.schedule);
  // In a V the first rank has the embedding and the head.
  const bool has_both = w.pp == 1 || kind == schedule::ScheduleKind::zbv || kind == schedule::ScheduleKind::dualpipe_v;
  const double tables = real(w.vocab) * h * (has_both && !w.tied ? 2 : 1);
  const double layers = real(w.most_layers);
  return {(layers * layer + tables) / w.tp, layers * experts / w.tp};
}

void split_evenly(StepWork& work) {
  work.most_layers = (work.layers + work.pp - 1) / work.pp;
  // The last stages have one less, if they cannot all have as many.
  work.last_layers = work.layers / work.pp;
}

StepWork work_of(const Config& c) {
  const ModelConfig& m = c.model;
  const ParallelismConfig& p = c.parallelism;
  StepWork w{.layers = m.num_hidden_layers,
             .hidden = m.hidden_size,
             .heads = m.num_attention_heads,
             .kv_heads = m.num_key_value_heads > 0 ? m.num_key_value_heads : m.num_attention_heads,
             .head_dim = m.head_dim > 0 ? m.head_dim : m.hidden_size / m.num_attention_heads,
             .mlp_width = m.intermediate_size,
             .mlp_matrices = config::family_of(m).mlp == config::MlpKind::gelu ? 2 : 3,
             .vocab = m.vocab_size,
             .tied = m.tie_word_embeddings,
             .experts = m.num_local_experts,
             .experts_per_token = m.num_experts_per_tok,
             .expert_width = m.moe_intermediate_size > 0 ? m.moe_intermediate_size : m.intermediate_size,
             .shared_width = m.shared_expert_intermediate_size,
             .seq_len = c.training.seq_len,
             .micro_batch = std::max<std::int64_t>(1, c.training.micro_batch_size),
             .microbatches = std::max<std::int64_t>(1, c.training.grad_accum),
             .window = m.sliding_window_pattern == 0 ? m.sliding_window : 0,
             .dp = static_cast<int>(std::max<std::int64_t>(1, p.dp)),
             .tp = static_cast<int>(p.tp),
             .pp = static_cast<int>(p.pp),
             .cp = static_cast<int>(p.cp),
             .ep = static_cast<int>(p.ep),
             .zero = static_cast<int>(p.zero),
             .replicate = static_cast<int>(p.replicate),
             .schedule = p.pp_schedule,
             .virtual_stages = static_cast<int>(p.virtual_stages),
             .sequence_parallel = p.sequence_parallel,
             .reshards = p.reshard_after_forward,
             .recompute = config::recompute_of(c.activation_checkpoint.mode),
             .fp8 = c.precision.matmul == "fp8",
             .element_bytes = config::param_dtype(c) == "float32" ? 4.0 : 2.0};
  w.most_layers = w.last_layers = w.layers;
  if (w.pp > 1) {
    std::vector<std::int64_t> layers(static_cast<std::size_t>(w.pp));
    const std::vector<PipelineChunk> chunks = pipeline_chunks(m, p);
    for (const PipelineChunk& chunk : chunks) layers[static_cast<std::size_t>(chunk.stage)] += chunk.layers.size();
    w.most_layers = *std::ranges::max_element(layers);
    w.last_layers = layers[static_cast<std::size_t>(chunks.back().stage)];
  }
  return w;
}

double model_flops(const StepWork& w) {
  const double h = real(w.hidden);
  double weights = h * real(2 * w.heads + 2 * w.kv_heads) * real(w.head_dim);
  if (w.experts > 0)
    weights += real(w.mlp_matrices) * h * (real(w.experts_per_token * w.expert_width) + real(w.shared_width)) +
               h * real(w.experts);
  else
    weights += real(w.mlp_matrices) * h * real(w.mlp_width);
  const double seen = w.window > 0 ? std::min(real(w.seq_len) / 2, real(w.window)) : real(w.seq_len) / 2;
  const double scores = 12 * real(w.layers) * seen * real(w.heads * w.head_dim);
  return w.tokens_per_step() * (6 * (real(w.layers) * weights + real(w.vocab) * h) + scores);
}

double StepTime::total() const {
  double sum = 0;
  for (const auto& [name, seconds] : parts()) sum += seconds;
  return sum;
}

std::vector<std::pair<std::string, double>> StepTime::parts() const {
  return {{"matmul", products},
          {"attention", attention},
          {"memory-bound", memory_bound},
          {"head and loss", head},
          {"tensor parallel", tensor_parallel},
          {"context parallel", context_parallel},
          {"expert parallel", expert_parallel},
          {"waiting for the host", host},
          {"pipeline bubble", bubble},
          {"pipeline transfers", transfers},
          {"data parallel", data_parallel},
          {"optimizer", optimizer},
          {"per step, stragglers", other}};
}

StepTime predict_step(const StepWork& work, const Machine& machine, const Software& software) {
  return Rank(work, machine, software).step();
}

double mfu(const StepWork& work, const StepTime& time, const Machine& machine) {
  return model_flops(work) / time.total() / (machine.gpu.peak_flops * work.gpus());
}

}  // namespace trireme::planner
