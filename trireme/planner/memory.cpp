#include "trireme/planner/memory.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/name_pattern.hpp"
#include "trireme/config/read/derive.hpp"
#include "trireme/config/rules/training_rules.hpp"
#include "trireme/config/schema/dense_grid.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/describe/counts.hpp"
#include "trireme/describe/local_parameters.hpp"
#include "trireme/describe/parameters.hpp"
#include "trireme/describe/pipeline.hpp"
#include "trireme/planner/real.hpp"
#include "trireme/schedule/replay.hpp"

// h hidden_size, d head_dim, f MLP width, V vocabulary, T tokens of a microbatch, t = tp
namespace trireme::planner {
namespace {

constexpr double kBytesOfMb = 1e6;  // as in GradReducer

bool has_gelu(const ModelConfig& m) { return config::family_of(m).mlp == config::MlpKind::gelu; }

/// What a pipeline rank holds of the model, and of its activations.
struct StageShare {
  bool has_embedding = true, has_head = true;
  std::int64_t layers = 0;
  std::vector<Range> which = {};         // layers; empty: all
  double live = 1;                       // microbatches of all its layers between forward and backward
  bool head_gradient_in_forward = true;  // as in TrainingModel
};

/// The parameters of a run on one pipeline rank, with "auto" resolved.
struct Run {
  const Config& config;
  const StageShare stage;
  const config::LocalParameters parameters;
  const PrecisionConfig precision;
  const std::int64_t shards, expert_shards;
  const double tokens;   // T of a rank: all tokens in the sharded matmuls
  const double between;  // tokens that it holds between the layers
  const bool on_gpu;

  /// The head uses the embedding's weight itself; between two pipeline chunks it has a copy.
  bool is_tied() const { return config.model.tie_word_embeddings && config.parallelism.pp == 1; }

  double param_bytes() const { return config::dtype_bytes(precision.param); }
};

/// Above this, live microbatches are bounded by those of a step instead of counted.
constexpr std::int64_t kMaxReplayedActions = 1'000'000;

std::vector<StageShare> shares_of(const Config& c) {
  const ParallelismConfig& p = c.parallelism;
  const std::int64_t microbatches = std::max<std::int64_t>(1, c.training.grad_accum);
  if (p.pp == 1) return {{.layers = c.model.num_hidden_layers}};
  const std::vector<PipelineChunk> chunks = pipeline_chunks(c.model, p);
  std::vector<StageShare> shares(static_cast<std::size_t>(p.pp), {.has_embedding = false, .has_head = false});
  std::vector<int> held(shares.size(), static_cast<int>(microbatches * p.virtual_stages));
  const auto chunks_of_stage = static_cast<std::int64_t>(chunks.size()) / p.pp;
  if (microbatches * static_cast<std::int64_t>(chunks.size()) <= kMaxReplayedActions) {
    // A schedule of a file is for one number of microbatches; advice on memory tries others.
    const schedule::Schedule schedule =
        p.pp_schedule_file.empty() ? pipeline_schedule(p, microbatches) : read_schedule(p.pp_schedule_file);
    const schedule::Replay replay = schedule::replay(schedule);
    for (std::size_t r = 0; r < shares.size(); ++r) {
      held[r] = replay.ranks[r].peak_held;
      shares[r].head_gradient_in_forward = schedule::microbatches_in_flight(schedule.programs[r]) <= 1;
    }
  }
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    StageShare& share = shares[static_cast<std::size_t>(chunks[i].stage)];
    share.has_embedding |= i == 0;
    share.has_head |= i + 1 == chunks.size();
    share.layers += chunks[i].layers.size();
    share.which.push_back(chunks[i].layers);
  }
  for (std::size_t r = 0; r < shares.size(); ++r) shares[r].live = real(held[r]) / real(chunks_of_stage);
  return shares;
}

Run run_of(const Config& c, const std::string& compute_dtype, const StageShare& stage, bool on_gpu) {
  PrecisionConfig precision = c.precision;
  precision.param = config::param_dtype(c);
  if (precision.param == "auto") precision.param = compute_dtype;
  const ParallelismConfig& p = c.parallelism;
  const double tokens = real(c.training.seq_len * c.training.micro_batch_size) / real(p.cp);
  config::LocalParameters parameters = config::local_parameters(c.model, p.tp, p.ep, p.expert_tp);
  const std::int64_t dp = std::max<std::int64_t>(1, p.dp), expert_tp = p.expert_tp > 0 ? p.expert_tp : p.tp;
  parameters.layers = stage.layers;
  if (!stage.has_embedding) parameters.embedding.clear();
  if (!stage.has_head) {
    parameters.head.clear();
    parameters.head_weight = 0;
  } else if (c.model.tie_word_embeddings && p.pp > 1) {
    parameters.head.push_back(parameters.head_weight);  // a copy
  }
  return {.config = c,
          .stage = stage,
          .parameters = std::move(parameters),
          .precision = precision,
          .shards = std::max<std::int64_t>(1, dp / p.replicate) * p.cp,
          .expert_shards = std::max<std::int64_t>(1, dp * p.cp * p.tp / (p.ep * expert_tp * p.replicate)),
          .tokens = tokens,
          .between = p.sequence_parallel ? tokens / real(p.tp) : tokens,
          .on_gpu = on_gpu};
}

bool is_head_frozen(const Config& c) {
  return matches_any(name_patterns(c.optimizer.frozen),
                     c.model.tie_word_embeddings ? "embedding.weight" : "head.weight");
}

/// Elements of this rank that are not trained (optimizer.frozen): dense ones, and those of experts.
std::pair<std::int64_t, std::int64_t> frozen_elements(const Run& run) {
  const Config& c = run.config;
  if (c.optimizer.frozen.empty()) return {0, 0};
  const auto is_elsewhere = [&](std::int64_t layer) {
    const std::vector<Range>& which = run.stage.which;
    return layer >= 0 && !which.empty() && std::ranges::none_of(which, [layer](const Range& range) {
             return range.begin <= layer && layer < range.end;
           });
  };
  const std::vector<NamePattern> frozen = name_patterns(c.optimizer.frozen);
  struct Share {
    double frozen = 0, all = 0;
    double of(std::int64_t elements) const { return all > 0 ? real(elements) * frozen / all : 0; }
  };
  Share begin, layers, experts, end;
  for (const Parameter& parameter : all_parameters(c.model)) {
    const std::int64_t layer = without_layer(parameter.name).second;
    if (is_elsewhere(layer)) continue;
    const bool in_layer = layer >= 0;
    const bool at_begin = parameter.kind == ParameterKind::embedding || parameter.kind == ParameterKind::positions;
    Share& share = !in_layer ? (at_begin ? begin : end) : parameter.is_of_experts() ? experts : layers;
    share.all += real(parameter.elements());
    if (matches_any(frozen, parameter.name)) share.frozen += real(parameter.elements());
  }
  const config::LocalParameters& n = run.parameters;
  return {std::llround(begin.of(config::elements(n.embedding)) + layers.of(n.layers * config::elements(n.layer)) +
                       end.of(config::elements(n.head))),
          std::llround(experts.of(n.expert_total()))};
}

bool is_stateless(const OptimizerConfig& optimizer) { return optimizer.name == "sgd" && optimizer.momentum == 0; }

void add_states(MemoryPlan& plan, const Run& run) {
  const Config& c = run.config;
  const std::int64_t experts = run.parameters.expert_total();
  const auto [frozen_dense, frozen_experts] = frozen_elements(run);
  struct Elements {
    std::int64_t all, frozen, shards;
  };
  for (const auto& [all, frozen, shards] : {Elements{run.parameters.total() - experts, frozen_dense, run.shards},
                                            Elements{experts, frozen_experts, run.expert_shards}}) {
    const auto states_of = [&, ranks = shards](std::int64_t elements) {
      return config::state_bytes(elements, run.precision, c.optimizer.name, c.parallelism.zero, ranks,
                                 c.parallelism.contiguous_gradients);
    };
    const std::vector<config::Bytes> parts = states_of(all - frozen);
    plan.weights += parts[0].bytes + states_of(frozen)[0].bytes;
    plan.gradients += parts[1].bytes;
    plan.master += parts[2].bytes;
    plan.states += is_stateless(c.optimizer) ? 0 : parts[3].bytes;
  }
}

/// Bytes that a layer stores for backward. Selective recompute also skips what is cheap to recompute: outputs of norms,
/// and the MLP's activation.
double layer_bytes(const Run& run, config::Recompute recompute) {
  const ModelConfig& m = run.config.model;
  const ParallelismConfig& p = run.config.parallelism;
  const config::ActivationShape shape{.seq_len = run.config.training.seq_len,
                                      .micro_batch_size = run.config.training.micro_batch_size,
                                      .tp = p.tp,
                                      .cp = p.cp,
                                      .sequence_parallel = p.sequence_parallel,
                                      .bytes_an_element = config::dtype_bytes(run.precision.param)};
  double bytes = 0;
  const bool has_experts = m.num_local_experts > 0;  // nothing of them is recomputed
  for (const config::Bytes& part : config::layer_activation_bytes(m, shape, recompute)) {
    if (recompute == config::Recompute::selective &&
        (part.name == "qkv input" || (part.name == "mlp input" && !has_experts)))
      continue;
    if (part.name == "dropout masks") continue;  // backward computes them again
    const double again = part.name == "mlp hidden" && !has_experts ? (has_gelu(m) ? 1.0 / 2 : 1.0 / 3) : 0;
    const bool selective = recompute == config::Recompute::selective;
    bytes += part.bytes * (selective ? 1 - again : 1);
    if (run.precision.matmul != "fp8") continue;
    // The inputs of linear layers are stored in one byte instead of two; that of `out`, which attention stores too,
    // beside it.
    if (part.name == "qkv input" || (part.name == "mlp input" && !has_experts)) bytes -= part.bytes / 2;
    if (part.name == "mlp hidden" && !selective) bytes -= part.bytes * again / 2;
    if (part.name == "attention output") bytes += part.bytes / 2;
  }
  if (has_experts && recompute != config::Recompute::full) {
    // Per token and expert the rows that arrive and those that return, which are in f32 unless they are weighted in the
    // kernel that adds them (parallel/expert/experts.cpp); scores, and the shared expert.
    const double element = shape.bytes_an_element, wide = std::max(4.0, element), tp = real(p.tp);
    const double tokens = run.tokens * real(p.expert_tp > 0 ? p.expert_tp : p.tp) / tp;
    const bool on_one_gpu =
        run.on_gpu && p.ep == 1 && m.expert_capacity_factor == 0 && run.precision.param == "bfloat16";
    bytes += tokens * real(m.num_experts_per_tok) * real(m.hidden_size) * (element + (on_one_gpu ? element : wide));
    bytes += tokens * real(m.num_local_experts) * wide;
    bytes += 3 * run.tokens * real(m.shared_expert_intermediate_size) / tp * element;
  }
  if (m.qk_norm && recompute != config::Recompute::full) {
    const double heads =
        real(m.num_attention_heads) / real(p.tp) + std::max(1.0, real(m.num_key_value_heads) / real(p.tp));
    bytes += run.tokens * heads * real(m.head_dim) * shape.bytes_an_element;
  }
  return bytes;
}

void add_activations(MemoryPlan& plan, const Run& run, bool on_gpu) {
  const ModelConfig& m = run.config.model;
  const double h = real(m.hidden_size), element = run.param_bytes();
  const config::Recompute recompute = config::recompute_of(run.config.activation_checkpoint.mode);
  plan.activations = run.stage.live * real(run.stage.layers) * layer_bytes(run, recompute);
  // The input of the first layer is the output of the embedding; after the last one come the inputs of the norm and of
  // the head, whose gradient is computed in forward, for all tokens.
  if (run.stage.has_head) plan.activations += run.stage.live * (run.between + run.tokens) * h * element;
  // In a pipeline an output that is being sent, and an input that arrives early.
  if (run.config.parallelism.pp > 1) plan.activations += 2 * run.between * h * element;
  if (!run.stage.has_head) return;
  const double wide = std::max(4.0, element);
  const double v = real(run.parameters.head_weight) / h, tile = real(loss_tile_tokens(on_gpu));
  // A GPU turns the logits into their gradients in place, in the dtype of the product.
  // With a cap, its derivatives beside them.
  plan.logits = std::min(tile, run.tokens) * v * (on_gpu ? element : wide) * (m.final_logit_softcapping > 0 ? 2 : 1);
  // Also the gradient of the head's weight, unless it is computed in backward (parallel/tensor/cross_entropy.cpp).
  if (run.stage.head_gradient_in_forward && !is_head_frozen(run.config) &&
      (run.tokens > std::min(tile, h) || element < wide))
    plan.logits += real(run.parameters.head_weight) * wide;
}

/// The units that ZeRO-3 gathers, in forward order: the number of elements of each, counting tensors of at least
/// `at_least` elements.
std::vector<double> units_of(const Run& run, std::int64_t at_least) {
  const config::LocalParameters& n = run.parameters;
  const auto size = [at_least](const config::UnitTensors& unit) {
    double sum = 0;
    for (const std::int64_t tensor : unit)
      if (tensor >= at_least) sum += real(tensor);
    return sum;
  };
  const double layer = size(n.layer) + size(n.experts);
  const std::int64_t width = config::layers_per_unit(run.config);
  if (width == 0) return {size(n.embedding) + real(n.layers) * layer + size(n.head)};
  std::vector<double> units = {size(n.embedding)};
  for (std::int64_t left = n.layers; left > 0; left -= width) units.push_back(real(std::min(left, width)) * layer);
  // A tied head gathers the embedding's weight once more.
  units.push_back(size(n.head) + (run.is_tied() ? size({n.head_weight}) : 0));
  return units;
}

/// Elements of parameters up to persistence_threshold, which are never freed.
double persistent_elements(const Run& run) {
  const config::LocalParameters& n = run.parameters;
  const auto small = [&](const config::UnitTensors& unit) {
    double sum = 0;
    for (const std::int64_t tensor : unit)
      if (tensor <= run.config.parallelism.persistence_threshold) sum += real(tensor);
    return sum;
  };
  return small(n.embedding) + real(n.layers) * (small(n.layer) + small(n.experts)) + small(n.head);
}

/// One unit in use and the next being prefetched, limited by max_live_parameters.
double live_elements(const Run& run, const std::vector<double>& units) {
  const ParallelismConfig& p = run.config.parallelism;
  const double gathered = real(run.parameters.total()) - persistent_elements(run);
  // All units are kept if the reuse distance of even the first, through forward and back, is within the limit.
  const bool kept = 2 * gathered <= real(p.max_reuse_distance) && gathered <= real(p.max_live_parameters);
  if (!p.reshard_after_forward || kept) return gathered;
  double pair = 0;
  for (std::size_t i = 0; i < units.size(); ++i) pair = std::max(pair, units[i] + (i > 0 ? units[i - 1] : 0));
  return std::min(pair, std::max(*std::ranges::max_element(units), real(p.max_live_parameters)));
}

/// The largest sum of three consecutive units: one is being filled, one communicated, and one queued.
double largest_three(const std::vector<double>& units) {
  double most = 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    double sum = 0;
    for (std::size_t k = i; k < std::min(i + 3, units.size()); ++k) sum += units[k];
    most = std::max(most, sum);
  }
  return most;
}

/// ZeRO-3: elements of gradient buckets that exist at the same time. The bucket of a tied embedding is open from the
/// backward of the head to its own. The buckets of a microbatch have been reduced when the next one opens its first.
double gradients_in_flight(const Run& run) {
  std::vector<double> units = units_of(run, 0);
  if (units.size() == 1) return units[0];
  if (!run.is_tied()) return largest_three(units);
  const double embedding = units.front();
  units.erase(units.begin());
  units.back() -= real(run.parameters.head_weight);
  return embedding + largest_three(units);
}

/// What attention over cp holds in the backward of one layer (parallel/context/ring_attention.cpp,
/// parallel/context/ulysses.cpp).
double context_buffers(const Run& run) {
  const ContextSplit split = config::context_split_of(run.config);
  if (split.cp == 1) return 0;
  const ModelConfig& m = run.config.model;
  const double tp = real(run.config.parallelism.tp), element = run.param_bytes(), wide = std::max(4.0, element);
  const double heads = run.tokens * real(m.num_attention_heads) / tp * real(m.head_dim);
  const double kv = 2 * run.tokens * std::max(1.0, real(m.num_key_value_heads) / tp) * real(m.head_dim);
  // The exchanged heads, and the gradients of both forms.
  const double exchanged = split.ulysses > 1 ? 3 * (heads + kv) * element : 0;
  if (split.ring() == 1) return exchanged;
  // dq and its part of a block, and the gradients of the block's keys for every query head.
  const double block = 4 * heads * wide;
  return exchanged + block +
         (split.method == ContextMethod::all_gather ? real(split.cp) * kv * (element + wide)
                                                    : 2 * kv * element + 3 * kv * wide);
}

/// What the backward of one layer with experts holds: rows on their way and the gradients of hidden features, and the
/// gradients of the weights before they are added.
double expert_buffers(const Run& run) {
  const ModelConfig& m = run.config.model;
  if (m.num_local_experts == 0) return 0;
  const ParallelismConfig& p = run.config.parallelism;
  const double expert_tp = real(p.expert_tp > 0 ? p.expert_tp : p.tp);
  const double rows = run.tokens * expert_tp / real(p.tp) * real(m.num_experts_per_tok);
  const double width = real(m.moe_intermediate_size > 0 ? m.moe_intermediate_size : m.intermediate_size) / expert_tp;
  return (rows * (4 * real(m.hidden_size) + 3 * width) + real(config::elements(run.parameters.experts))) *
         run.param_bytes();
}

void add_communication(MemoryPlan& plan, const Run& run) {
  const ParallelismConfig& p = run.config.parallelism;
  const PrecisionConfig& precision = run.precision;
  const double all = real(run.parameters.total()), reduce = config::dtype_bytes(precision.reduce);
  // bucket_mb is in the accumulation dtype. An embedding has a bucket of its own.
  const double bucket = p.bucket_mb * kBytesOfMb * reduce / config::dtype_bytes(precision.accumulate);
  const double embedding = units_of(run, 0).front() * reduce, others = all * reduce - embedding;
  if (p.zero <= 1) {
    // Buckets are slices of the gradients, communicated in place unless precision.reduce is another dtype; then two are
    // in flight.
    plan.buffers =
        precision.reduce == precision.accumulate ? 0 : std::min(2 * std::max(bucket, embedding), all * reduce);
  } else if (p.zero == 2) {
    // One bucket is being filled, one communicated, and one queued; that of a tied embedding is open all the time.
    plan.buffers = run.is_tied() ? embedding + std::min(3 * bucket, others)
                                 : std::min(std::max(bucket, embedding) + 2 * bucket, all * reduce);
  } else {
    plan.buffers = gradients_in_flight(run) * reduce;
    plan.live_units =
        (persistent_elements(run) + live_elements(run, units_of(run, p.persistence_threshold + 1))) * run.param_bytes();
  }
  // Of the gradient norm: an f64 per block of 1,024 elements of the shard, or of all of them
  // (parallel/zero/grad_norm.hpp).
  const double shards = p.zero >= 1 && !run.config.comm.deterministic ? real(run.shards) : 1;
  plan.buffers += sizeof(double) * all / 1024 / shards;
}

/// What the backward of one dense MLP holds: the gradients of its output and input, and of its hidden features.
double mlp_buffers(const Run& run) {
  const ModelConfig& m = run.config.model;
  if (m.num_local_experts > 0) return 0;
  const double hidden = real(m.intermediate_size) / real(run.config.parallelism.tp) * (has_gelu(m) ? 1 : 2);
  return run.tokens * (2 * real(m.hidden_size) + hidden) * run.param_bytes();
}

/// The loss with its logits is over when the backward of the layers begins, which needs buffers of its own and, with
/// full recompute, all activations of one layer: whichever is larger at its time counts. The input of the head is free
/// by then.
void add_layer_backward(MemoryPlan& plan, const Run& run) {
  const double head_input =
      run.stage.has_head ? run.tokens * real(run.config.model.hidden_size) * run.param_bytes() : 0;
  const bool full = config::recompute_of(run.config.activation_checkpoint.mode) == config::Recompute::full;
  const double recomputed = full ? layer_bytes(run, config::Recompute::none) : 0;
  const double buffers = std::max({context_buffers(run), expert_buffers(run), mlp_buffers(run)});
  if (recomputed + buffers <= plan.logits + head_input) return;
  plan.buffers += buffers;
  plan.activations += recomputed - head_input;
  plan.logits = 0;
}

/// The largest unit with a value of at least ten, so that integers are precise enough.
std::pair<double, std::string_view> unit_for(double bytes) {
  constexpr std::string_view kNames[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double size = 1;
  std::size_t i = 0;
  for (; i + 1 < std::size(kNames) && bytes >= 10 * 1024 * size; ++i) size *= 1024;
  return {size, kNames[i]};
}

}  // namespace

std::int64_t loss_tile_tokens(bool on_gpu) { return on_gpu ? 4096 : 256; }

MemoryPlan predict_memory(const Config& config, const std::string& compute_dtype, bool on_gpu) {
  MemoryPlan most;
  for (const StageShare& stage : shares_of(config)) {
    const Run run = run_of(config, compute_dtype, stage, on_gpu);
    MemoryPlan plan;
    add_states(plan, run);
    add_activations(plan, run, on_gpu);
    add_communication(plan, run);
    add_layer_backward(plan, run);
    if (plan.total() > most.total()) most = plan;
  }
  return most;
}

double predict_saved_bytes(const Config& c) {
  const ParallelismConfig& p = c.parallelism;
  const std::vector<NamePattern> patterns = name_patterns(c.optimizer.frozen);
  std::int64_t trained = 0, frozen = 0;
  for (const Parameter& parameter : all_parameters(c.model))
    (matches_any(patterns, parameter.name) ? frozen : trained) += parameter.elements();
  const std::vector<config::Bytes> parts =
      config::state_bytes(trained, c.precision, c.optimizer.name, /*zero=*/0, /*shards=*/1);
  const double weights = parts[2].bytes > 0 ? parts[2].bytes : parts[0].bytes;
  const double all = weights + (is_stateless(c.optimizer) ? 0 : parts[3].bytes) +
                     real(frozen) * config::dtype_bytes(c.precision.param);
  return all / real(std::max<std::int64_t>(1, p.dp) * p.tp * p.cp * p.pp);
}

std::string describe(const MemoryPlan& plan) {
  const auto [size, name] = unit_for(plan.total());
  const auto in_units = [unit = size](double bytes) { return std::llround(bytes / unit); };
  std::string parts;
  const std::pair<const char*, double> all[] = {
      {"weights", plan.weights},         {"gradients", plan.gradients}, {"states", plan.master + plan.states},
      {"activations", plan.activations}, {"logits", plan.logits},       {"buffers", plan.buffers},
      {"gathered", plan.live_units}};
  for (const auto& [what, bytes] : all)
    if (in_units(bytes) > 0) parts += text(parts.empty() ? ": " : " · ", what, " ", thousands(in_units(bytes)));
  return text("predicted ", thousands(in_units(plan.total())), " ", name, "/rank", parts);
}

}  // namespace trireme::planner
