#include "trireme/config/schema/fields.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/choices.hpp"
#include "trireme/config/schema/field_makers.hpp"
#include "trireme/schedule/generate.hpp"

namespace trireme::config {
namespace {

struct Unit {
  std::string_view key;
  const char* unit;
};
constexpr Unit kUnits[] = {
    {"model.vocab_size", "tokens"},
    {"model.max_position_embeddings", "tokens"},
    {"model.sliding_window", "tokens"},
    {"model.rope_scaling.original_max_position_embeddings", "tokens"},
    {"data.start_step", "steps, from 1"},
    {"data.seq_len", "tokens"},
    {"training.steps", "steps"},
    {"training.seq_len", "tokens"},
    {"training.micro_batch_size", "sequences"},
    {"training.grad_accum", "microbatches"},
    {"training.global_batch_size", "sequences"},
    {"validation.interval", "steps"},
    {"validation.samples", "sequences"},
    {"lr_scheduler.warmup_steps", "steps"},
    {"lr_scheduler.start_delay", "steps"},
    {"lr_scheduler.decay_steps", "steps"},
    {"lr_scheduler.decay_start_step", "completed steps"},
    {"lr_scheduler.decay_end_step", "completed steps"},
    {"parallelism.bucket_mb", "1e6 bytes"},
    {"parallelism.max_live_parameters", "elements"},
    {"parallelism.max_reuse_distance", "elements"},
    {"parallelism.persistence_threshold", "elements"},
    {"loss_scale.growth_interval", "steps"},
    {"loss_scale.hysteresis", "steps"},
    {"checkpoint.interval", "steps"},
    {"checkpoint.keep_every", "steps"},
    {"checkpoint.buffer_mb", "1e6 bytes"},
    {"checkpoint.stall_warning_s", "seconds"},
    {"checkpoint.stall_timeout_s", "seconds"},
    {"metrics.interval", "steps"},
    {"metrics.peak_tflops", "TFLOP/s"},
    {"profiler.steps", "steps, from 1"},
    {"profiler.wait", "steps"},
    {"profiler.warmup", "steps"},
    {"profiler.active", "steps"},
    {"comm.init_timeout_s", "seconds"},
    {"comm.timeout_s", "seconds"},
    {"checks.replicas_every", "steps"},
};

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string out(buffer.data(), error == std::errc() ? end : buffer.data());
  return out.find_first_of(".e") == std::string::npos ? out + ".0" : out;  // 1 would be read back as an integer
}

std::string scalar_text(const std::string& value) { return toml_string(value); }
std::string scalar_text(std::int64_t value) { return std::to_string(value); }
std::string scalar_text(double value) { return number_text(value); }
std::string scalar_text(const Steps& value) {
  return value.is_whole() ? std::to_string(static_cast<std::int64_t>(value.count)) : number_text(value.count);
}
std::string scalar_text(bool value) { return value ? "true" : "false"; }
template <class T>
std::string scalar_text(const std::vector<T>& values) {
  std::string out = "[";
  for (const T& value : values) out += (out.size() > 1 ? ", " : "") + scalar_text(value);
  return out + "]";
}

std::vector<Field> stage_fields(const std::string& prefix, DataStage& stage) {
  return {
      {prefix + "start_step", &stage.start_step, "first step of this stage; the first stage starts at 1", 1, kMaxCount},
      {prefix + "seq_len", &stage.seq_len, "0 = training.seq_len", 0, kMaxSize},
      one_of(prefix + "attention", &stage.attention,
             "tokens attend within their document or their sample; auto: document if the data has a loss mask (chat)",
             data_scope_words()),
      one_of(prefix + "positions", &stage.positions, "positions count from the start of the document or of the sample",
             data_scope_words()),
      one_of(prefix + "packing", &stage.packing,
             "samples are cut from the tokens one after the other, or hold whole documents and padding; auto: whole if "
             "the data has a loss mask (chat)",
             packing_words())};
}
std::vector<Field> source_fields(const std::string& prefix, DataSource& source) {
  return {{prefix + "path", &source.path,
           "a token file (.ds, .bin/.idx, llm.c .bin) or \"synthetic\"; relative to the working directory"},
          {prefix + "weight", &source.weight, "share of the samples, relative to the other sources", 0, 1e12, true}};
}

void add_data_fields(std::vector<Field>& all, std::vector<DataStage>& data) {
  const auto add = [&](const std::vector<Field>& some) { all.insert(all.end(), some.begin(), some.end()); };
  for (std::size_t i = 0; i < data.size(); ++i) {
    const std::string stage = text("data.", i, ".");
    add(stage_fields(stage, data[i]));
    for (std::size_t j = 0; j < data[i].sources.size(); ++j)
      add(source_fields(text(stage, "sources.", j, "."), data[i].sources[j]));
  }
}

}  // namespace

std::vector<Field> fields(Config& c) {
  std::vector<std::string> schedules = schedule::schedule_names();
  schedules.insert(schedules.end(), {"gpipe", "zero-bubble"});

  std::vector<Field> all = {
      filled({"run.name", &c.run.name, "name of the run's folder; %date, %jobid and %layout are filled in"}),
      filled({"run.dir", &c.run.dir, "folder of all runs"}),
      {"run.seed", &c.run.seed, "initial weights, dropout and data order depend on it, never on the layout", 0},

  };
  const auto add = [&all](const std::vector<Field>& some) { all.insert(all.end(), some.begin(), some.end()); };
  add(model_fields(c.model));
  add({
      {"tokenizer.path", &c.tokenizer.path,
       "tokenizer.json, tekken.json, *.model (SentencePiece), *.tiktoken, a folder with one, or \"bytes\""},
  });
  add_data_fields(all, c.data);
  add({
      {"training.steps", &c.training.steps, "optimizer updates", 1, kMaxCount},
      {"training.seq_len", &c.training.seq_len, "tokens per sequence", 1, kMaxSize},
      {"training.micro_batch_size", &c.training.micro_batch_size, "sequences per microbatch and dp rank; 0 = derived",
       0, kMaxDegree},
      {"training.grad_accum", &c.training.grad_accum, "microbatches per step; 0 = derived", 0, kMaxDegree},
      {"training.global_batch_size", &c.training.global_batch_size,
       "sequences per step; 0 = derived: micro_batch_size x grad_accum x dp", 0, kMaxSize},
      {"training.max_norm", &c.training.max_norm, "gradients are clipped to this norm; 0 = never", 0, 1e30},
      {"training.label_smoothing", &c.training.label_smoothing,
       "share of each target that is spread over the vocabulary, in the training loss", 0, 1},
      {"training.z_loss_coef", &c.training.z_loss_coef,
       "weight of the squared log-sum-exp of the logits, added to the training loss", 0, 1e6},

      {"validation.interval", &c.validation.interval, "steps between two validations; 0 = never", 0, kMaxCount},
      {"validation.samples", &c.validation.samples, "samples per source; 0 = all", 0, kMaxCount},
      {"validation.fraction", &c.validation.fraction, "share of every data source's tokens held out of training", 0, 1},
      filled({"validation.sources", &c.validation.sources, "separate token files, instead of a fraction"}),

      one_of("optimizer.name", &c.optimizer.name,
             "the optimizer; adamw decouples weight decay, adam adds it to the gradient", {"adamw", "adam", "sgd"}),
      {"optimizer.lr", &c.optimizer.lr, "highest learning rate", 0, 1e6, true},
      {"optimizer.betas", &c.optimizer.betas, "decay of Adam's two moments", 0, 1},
      {"optimizer.eps", &c.optimizer.eps, "Adam's epsilon", 0, 1, true},
      {"optimizer.weight_decay", &c.optimizer.weight_decay, "share of a weight that decays in a step of lr 1", 0, 1e6},
      filled({"optimizer.no_decay", &c.optimizer.no_decay,
              "parameters without weight decay: a part of the name, a glob (* ? [), or re:REGEX"}),
      filled({"optimizer.frozen", &c.optimizer.frozen,
              "parameters that are not trained, by name as in no_decay: without gradients and states"}),
      filled(
          {"optimizer.lr_factors", &c.optimizer.lr_factors,
           "\"PATTERN FACTOR\": parameters, by name as in no_decay, whose learning rate is multiplied; the first that "
           "matches counts"}),
      {"optimizer.momentum", &c.optimizer.momentum, "sgd only", 0, 1},
      {"optimizer.nesterov", &c.optimizer.nesterov, "sgd only"},
      {"optimizer.skip_z", &c.optimizer.skip_z,
       "skip an update whose gradient norm is more than this many standard deviations above the mean of the last 128 "
       "steps, itself included, as in llm.c; 0 = never",
       0, 11},

      {"lr_scheduler.warmup_steps", &c.lr_scheduler.warmup_steps, "steps from start_lr to optimizer.lr", 0, kMaxCount},
      one_of("lr_scheduler.warmup_shape", &c.lr_scheduler.warmup_shape, "shape of the warm-up; log is DeepSpeed's",
             lr_warmup_words()),
      {"lr_scheduler.start_lr", &c.lr_scheduler.start_lr, "learning rate that the warm-up starts from", 0, 1e6},
      {"lr_scheduler.start_delay", &c.lr_scheduler.start_delay,
       "steps at start_lr before the warm-up: 1 in nanotron, Megatron and the HF Trainer, 2 in DeepSpeed", 0,
       kMaxCount},
      one_of("lr_scheduler.decay", &c.lr_scheduler.decay, "shape of the decay", lr_decay_words()),
      {"lr_scheduler.decay_steps", &c.lr_scheduler.decay_steps,
       "length of the decay; 0 = all steps after the warm-up. inverse-sqrt: steps until the rate is lr / sqrt(2)", 0,
       kMaxCount},
      {"lr_scheduler.decay_start_step", &c.lr_scheduler.decay_start_step,
       "steps before the decay; -1 = the warm-up, or all but the last decay_steps", -1, kMaxCount},
      {"lr_scheduler.decay_end_step", &c.lr_scheduler.decay_end_step,
       "steps after which the learning rate is min_lr; 0 = training.steps", 0, kMaxCount},
      {"lr_scheduler.min_lr", &c.lr_scheduler.min_lr, "learning rate after the decay", 0, 1e6},

      {"parallelism.dp", &c.parallelism.dp, "data parallel replicas; -1 = all remaining ranks", -1, kMaxDegree},
      {"parallelism.zero", &c.parallelism.zero,
       "sharded over dp: 0 nothing, 1 optimizer states, 2 + gradients, 3 + parameters (FSDP)", 0, 3},
      {"parallelism.tp", &c.parallelism.tp, "tensor parallel ranks", 1, kMaxDegree},
      {"parallelism.sequence_parallel", &c.parallelism.sequence_parallel,
       "split norms and dropout over tp along the sequence; default: where tp divides it"},
      {"parallelism.pp", &c.parallelism.pp, "pipeline stages", 1, kMaxDegree},
      one_of("parallelism.pp_schedule", &c.parallelism.pp_schedule, "pipeline schedule", schedules),
      {"parallelism.pp_schedule_file", &c.parallelism.pp_schedule_file,
       "instead: a schedule file, in the format of trireme schedule --text"},
      {"parallelism.virtual_stages", &c.parallelism.virtual_stages, "chunks per rank, for interleaved-1f1b", 1,
       kMaxDegree},
      {"parallelism.stages", &c.parallelism.stages, "layers of each chunk; empty = by cost", 0, kMaxDegree},
      {"parallelism.cp", &c.parallelism.cp, "context parallel ranks: each sequence is split over them", 1, kMaxDegree},
      one_of("parallelism.cp_method", &c.parallelism.cp_method,
             "how attention communicates between the parts of a sequence",
             {"ring", "ring-contiguous", "all-gather", "ulysses", "ulysses-ring"}),
      {"parallelism.ep", &c.parallelism.ep, "expert parallel ranks, out of dp x cp (x tp)", 1, kMaxDegree},
      {"parallelism.expert_tp", &c.parallelism.expert_tp, "tensor parallel ranks per expert; 0 = tp", 0, kMaxDegree},
      {"parallelism.order", &c.parallelism.order, "axes from the innermost to the outermost"},
      {"parallelism.replicate", &c.parallelism.replicate, "HSDP: dp = replicate x shard", 1, kMaxDegree},
      {"parallelism.reshard_after_forward", &c.parallelism.reshard_after_forward,
       "ZeRO-3: free gathered parameters between forward and backward"},
      {"parallelism.overlap_comm", &c.parallelism.overlap_comm, "communicate while computing"},
      {"parallelism.reduce_scatter", &c.parallelism.reduce_scatter,
       "ZeRO: each rank receives only the sum of its own shard; false = all-reduce, and each keeps its shard"},
      {"parallelism.contiguous_gradients", &c.parallelism.contiguous_gradients,
       "gradients are copied to a flat buffer as they arrive; false = they stay separate until backward ends"},
      {"parallelism.bucket_mb", &c.parallelism.bucket_mb, "size of a gradient bucket", 0, 1e6, true},
      {"parallelism.max_live_parameters", &c.parallelism.max_live_parameters, "ZeRO-3: gathered elements at most", 0,
       1e18},
      {"parallelism.max_reuse_distance", &c.parallelism.max_reuse_distance,
       "ZeRO-3: keep a unit that is needed again this soon, in elements", 0, 1e18},
      {"parallelism.persistence_threshold", &c.parallelism.persistence_threshold,
       "ZeRO-3: smaller parameters stay gathered", 0, 1e18},
      {"parallelism.zero_unit", &c.parallelism.zero_unit,
       "ZeRO-3 gathers a \"layer\", a number of layers, or the \"model\""},

      one_of("precision.param", &c.precision.param, "auto = model.dtype", kDtypes),
      one_of("precision.reduce", &c.precision.reduce, "dtype in which gradients are reduced", kRealDtypes),
      one_of("precision.accumulate", &c.precision.accumulate,
             "dtype in which gradients are accumulated over microbatches", kRealDtypes),
      one_of("precision.master", &c.precision.master,
             "the optimizer's copy of the weights: float32, or float64 for float64 weights", kRealDtypes),
      one_of("precision.states", &c.precision.states, "dtype of the optimizer's moments", kRealDtypes),
      one_of("precision.matmul", &c.precision.matmul,
             "operands of the linear layers' products, except the head: the weights' dtype, or rounded to 8 bits",
             {"auto", "fp8"}),
      one_of("precision.fp8_scaling", &c.precision.fp8_scaling,
             "with precision.matmul = \"fp8\": one scale per tensor, or per row of each operand", {"tensor", "row"}),
      one_of("precision.fp8_amax", &c.precision.fp8_amax,
             "with precision.matmul = \"fp8\": scales from the largest elements of this step, or of the 16 before",
             {"step", "delayed"}),

      {"loss_scale.initial", &c.loss_scale.initial, "initial loss scale, for float16 only", 1, 1e30},
      {"loss_scale.growth_interval", &c.loss_scale.growth_interval, "good steps before the scale doubles", 1,
       kMaxCount},
      {"loss_scale.hysteresis", &c.loss_scale.hysteresis, "bad steps before it halves", 1, kMaxCount},

      one_of("activation_checkpoint.mode", &c.activation_checkpoint.mode, "what backward recomputes",
             {"none", "selective", "full"}),

      {"checkpoint.interval", &c.checkpoint.interval, "steps between checkpoints; 0 = only at the end", 0, kMaxCount},
      {"checkpoint.keep", &c.checkpoint.keep, "newest checkpoints to keep; 0 = all", 0, kMaxCount},
      {"checkpoint.keep_every", &c.checkpoint.keep_every,
       "also keep checkpoints whose step is a multiple of this; 0 = none", 0, kMaxCount},
      filled({"checkpoint.resume", &c.checkpoint.resume, "auto, never, or the path of a checkpoint"}),
      {"checkpoint.async", &c.checkpoint.async, "write in the background"},
      {"checkpoint.buffer_mb", &c.checkpoint.buffer_mb,
       "memory per rank for a save in the background, 0 = what its state needs, as far as the host has it; with less, "
       "the next update waits for the disk",
       0, 1e9},
      {"checkpoint.max_failures", &c.checkpoint.max_failures,
       "the run stops after this many failed saves in a row; 0 = never", 0, kMaxCount},
      {"checkpoint.stall_warning_s", &c.checkpoint.stall_warning_s,
       "a save that writes nothing for this long is reported", 1, 1e9},
      {"checkpoint.stall_timeout_s", &c.checkpoint.stall_timeout_s,
       "a save that writes nothing for this long ends the run", 1, 1e9},
      one_of("checkpoint.accept_changes", &c.checkpoint.accept_changes,
             "what may differ from the checkpoint that a run resumes from", {"data", "tokenizer", "seed", "optimizer"}),
      {"checkpoint.export_hf", &c.checkpoint.export_hf,
       "the checkpoint of the last step is also a Hugging Face folder, which transformers loads"},
      one_of("checkpoint.format", &c.checkpoint.format,
             "layout of a checkpoint's folder: our own, or as nanotron documents it", {"trireme", "nanotron"}),

      {"metrics.interval", &c.metrics.interval, "steps between printed lines", 1, kMaxCount},
      one_of("metrics.console", &c.metrics.console,
             "what is printed: a table of steps, on a terminal with a bar below it (auto, bar), key=value lines "
             "(plain), JSON lines",
             {"auto", "bar", "plain", "json", "quiet"}),
      {"metrics.tensorboard", &c.metrics.tensorboard, "write event files"},
      filled(
          {"metrics.hub_command", &c.metrics.hub_command, "command that uploads the event folder {dir}; empty = none"}),
      {"metrics.peak_tflops", &c.metrics.peak_tflops,
       "dense peak of one device in the compute dtype, which mfu and hfu are shares of; 0 = that of the GPU, if it is "
       "known",
       0, 1e9},

      {"profiler.steps", &c.profiler.steps, "steps to trace: phases, layers, collectives, memory", 1, kMaxCount},
      {"profiler.operations", &c.profiler.operations,
       "trace every operation of CPU and GPU with libtorch's profiler: wait, warmup, then active steps"},
      one_of("profiler.memory_snapshot", &c.profiler.memory_snapshot,
             "GPU: write what its memory is used for when it runs out, or also after profiler.steps",
             {"never", "on_oom", "steps"}),
      {"profiler.wait", &c.profiler.wait, "with operations: steps before anything is recorded", 0, kMaxCount},
      {"profiler.warmup", &c.profiler.warmup, "with operations: then steps that are recorded and dropped", 0,
       kMaxCount},
      {"profiler.active", &c.profiler.active, "with operations: then steps that are kept", 1, kMaxCount},
      {"profiler.with_stack", &c.profiler.with_stack,
       "with operations: also sizes of inputs, and the layers around an operation"},
      filled({"profiler.dir", &c.profiler.dir, "folder for traces, inside the run's folder"}),

      one_of("comm.backend", &c.comm.backend, "auto = nccl on CUDA, gloo on CPU", comm_backend_words()),
      {"comm.init_timeout_s", &c.comm.init_timeout_s, "limit for all ranks to join", 0, 1e6, true},
      {"comm.timeout_s", &c.comm.timeout_s, "limit for one communication call", 0, 1e6, true},
      one_of("comm.check", &c.comm.check, "compare calls across ranks: never, once a step, before each",
             {"off", "fast", "strict"}),
      {"comm.deterministic", &c.comm.deterministic, "sum in rank order"},
      {"comm.shared_memory", &c.comm.shared_memory, "CPU ranks of one host exchange data through memory, not Gloo"},
      {"comm.share_gpu", &c.comm.share_gpu, "let several ranks use one GPU (tests)"},

      one_of("cuda.graphs", &c.cuda.graphs,
             "replay forward and backward of a microbatch as one CUDA graph: where that is faster, always, never",
             {"auto", "on", "off"}),
      {"cuda.fused_matmul", &c.cuda.fused_matmul,
       "biases, residuals, GELU and its gradient within matrix products (cuBLASLt); false = ATen's operators one by "
       "one"},
      {"cuda.tune_matmul", &c.cuda.tune_matmul,
       "measure the algorithms of matrix products after the first step and use the fastest (not with "
       "cuda.deterministic)"},
      {"cuda.deterministic", &c.cuda.deterministic,
       "the same bits in every run: attention sums its gradients in a fixed order, which is slower"},

      {"checks.replicas_every", &c.checks.replicas_every,
       "steps between comparisons of replicas by hash: gradients after their sums, weights and states; 0 = never", 0,
       kMaxCount},
      one_of("checks.non_finite", &c.checks.non_finite, "a NaN or Inf in the gradients: stop, or skip the update",
             non_finite_words()),
  });
  return all;
}

std::optional<Field> find_data_field(DataStage& stage, std::int64_t source, const std::string& key) {
  const std::string prefix = key.substr(0, key.rfind('.') + 1);
  std::vector<Field> some;
  if (source < 0)
    some = stage_fields(prefix, stage);
  else if (source < static_cast<std::int64_t>(stage.sources.size()))
    some = source_fields(prefix, stage.sources[static_cast<std::size_t>(source)]);
  const auto it = std::ranges::find(some, key, &Field::key);
  return it == some.end() ? std::nullopt : std::optional(*it);
}

std::string toml_string(const std::string& value) {
  std::string out = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\';
    if (byte >= 0x20 && byte != 0x7f) {
      out += c;
    } else {
      constexpr const char* kHex = "0123456789abcdef";
      out += std::string("\\u00") + kHex[byte >> 4] + kHex[byte & 15];
    }
  }
  return out + '"';
}

std::string toml_text(const FieldValue& value) {
  return std::visit([](const auto* v) { return scalar_text(*v); }, value);
}

const char* type_word(const FieldValue& value) {
  constexpr const char* kWords[] = {
      "a string",          "a whole number",          "a number",         "a number of steps", "true or false",
      "a list of strings", "a list of whole numbers", "a list of numbers"};
  return kWords[value.index()];
}

const char* unit_of(const std::string& key) {
  const auto row = std::ranges::find(kUnits, key, &Unit::key);
  return row == std::end(kUnits) ? "" : row->unit;
}

std::string section_of(const std::string& key) { return key.substr(0, key.find('.')); }

std::string leaf_of(const std::string& key) { return key.substr(key.rfind('.') + 1); }

}  // namespace trireme::config
