#include "trireme/config/aliases.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>

#include "trireme/base/error.hpp"
#include "trireme/config/fields.hpp"

namespace trireme {
namespace {

// --- values
// -----------------------------------------------------------------------------------------------------------------

std::string lower(std::string word) {
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return word;
}

std::string word_of(const Value& value) {
  if (const auto* v = std::get_if<std::string>(&value.data)) return *v;
  if (const auto* v = std::get_if<RawText>(&value.data)) return v->text;
  return str(value);
}

std::optional<double> number_of(const Value& value) {
  if (const auto* v = std::get_if<double>(&value.data)) return *v;
  if (const auto* v = std::get_if<std::int64_t>(&value.data)) return static_cast<double>(*v);
  const std::string word = word_of(value);
  char* end = nullptr;
  const double parsed = std::strtod(word.c_str(), &end);
  return !word.empty() && *end == '\0' ? std::optional(parsed) : std::nullopt;
}

double number_or_throw(const Setting& s) {
  const auto number = number_of(s.value);
  require<ConfigError>(number.has_value(), s.path, " = ", str(s.value), " is not a number");
  return *number;
}

/// true, false, a flag without a value, or "true"/"1".
bool truth_of(const Setting& s) {
  if (const auto* v = std::get_if<bool>(&s.value.data)) return *v;
  const std::string word = lower(word_of(s.value));
  if (word.empty() || word == "true" || word == "1") return true;
  require<ConfigError>(word == "false" || word == "0", s.path, " = ", str(s.value), " is not true or false");
  return false;
}

Settings one(const Setting& s, const std::string& key, Value value) { return {{key, std::move(value), s.place}}; }

// --- translations
// -------------------------------------------------------------------------------------------------------------

Settings same(const Setting& s, const std::string& key, const Config&) {
  return std::holds_alternative<Nothing>(s.value.data) ? Settings{} : one(s, key, s.value);
}

Settings as_lower(const Setting& s, const std::string& key, const Config&) {
  return one(s, key, {lower(word_of(s.value))});
}

Settings as_truth(const Setting& s, const std::string& key, const Config&) { return one(s, key, {truth_of(s)}); }

/// The word that ours is called by; ConfigError names those that have a counterpart.
Settings by_table(const Setting& s, const std::string& key, const std::map<std::string, Value>& table) {
  const auto it = table.find(lower(word_of(s.value)));
  if (it == table.end()) {
    std::string known;
    for (const auto& [word, value] : table) known += (known.empty() ? "" : ", ") + word;
    throw ConfigError(text(s.path, " = ", str(s.value), " has no counterpart here (known: ", known, ")"));
  }
  return one(s, key, it->second);
}

Settings dtype(const Setting& s, const std::string& key, const Config&) {
  return by_table(s, key,
                  {{"bf16", {"bfloat16"}},
                   {"bfloat16", {"bfloat16"}},
                   {"torch.bfloat16", {"bfloat16"}},
                   {"fp16", {"float16"}},
                   {"half", {"float16"}},
                   {"float16", {"float16"}},
                   {"torch.float16", {"float16"}},
                   {"fp32", {"float32"}},
                   {"float", {"float32"}},
                   {"float32", {"float32"}},
                   {"torch.float32", {"float32"}},
                   {"fp64", {"float64"}},
                   {"float64", {"float64"}},
                   {"double", {"float64"}}});
}

Settings bfloat16_if_true(const Setting& s, const std::string& key, const Config&) {
  return truth_of(s) ? one(s, key, {"bfloat16"}) : Settings{};
}
Settings float16_if_true(const Setting& s, const std::string& key, const Config&) {
  return truth_of(s) ? one(s, key, {"float16"}) : Settings{};
}
Settings float32_if_true(const Setting& s, const std::string& key, const Config&) {
  return truth_of(s) ? one(s, key, {"float32"}) : Settings{};
}
Settings full_if_true(const Setting& s, const std::string& key, const Config&) {
  return truth_of(s) ? one(s, key, {"full"}) : Settings{};
}
Settings one_if_true(const Setting& s, const std::string& key, const Config&) {
  return truth_of(s) ? one(s, key, {std::int64_t{1}}) : Settings{};
}
Settings three_if_true(const Setting& s, const std::string& key, const Config&) {
  return truth_of(s) ? one(s, key, {std::int64_t{3}}) : Settings{};
}
Settings not_of(const Setting& s, const std::string& key, const Config&) { return one(s, key, {!truth_of(s)}); }

Settings tp_mode(const Setting& s, const std::string& key, const Config&) {
  return by_table(s, key, {{"reduce_scatter", {true}}, {"all_reduce", {false}}});
}

Settings schedule(const Setting& s, const std::string& key, const Config&) {
  return by_table(s, key,
                  {{"afab", {"afab"}},
                   {"gpipe", {"afab"}},
                   {"1f1b", {"1f1b"}},
                   {"interleaved1f1b", {"interleaved-1f1b"}},
                   {"zbvzerobubble", {"zbv"}},
                   {"dualpipev", {"dualpipe-v"}}});
}

Settings decay_style(const Setting& s, const std::string& key, const Config&) {
  return by_table(s, key,
                  {{"linear", {"linear"}},
                   {"cosine", {"cosine"}},
                   {"1-sqrt", {"1-sqrt"}},
                   {"sqrt", {"1-sqrt"}},
                   {"constant", {"constant"}},
                   {"constant_with_warmup", {"constant"}}});
}

Settings minutes(const Setting& s, const std::string& key, const Config&) {
  return one(s, key, {60 * number_or_throw(s)});
}

Settings beta(const Setting& s, const std::string& key, const Config& so_far, std::size_t index) {
  std::vector<double> betas = so_far.optimizer.betas;
  betas.resize(2, 0);
  betas[index] = number_or_throw(s);
  return one(s, key, {Values{{betas[0]}, {betas[1]}}});
}
Settings beta1(const Setting& s, const std::string& key, const Config& so_far) { return beta(s, key, so_far, 0); }
Settings beta2(const Setting& s, const std::string& key, const Config& so_far) { return beta(s, key, so_far, 1); }

Settings ratio_of_steps(const Setting& s, const std::string& key, const Config& so_far) {
  return one(s, key, {std::llround(number_or_throw(s) * static_cast<double>(so_far.training.steps))});
}
Settings factor_of_lr(const Setting& s, const std::string& key, const Config& so_far) {
  return one(s, key, {number_or_throw(s) * so_far.optimizer.lr});
}
Settings shard_degree(const Setting& s, const std::string& key, const Config& so_far) {
  const auto shard = static_cast<std::int64_t>(number_or_throw(s));
  return one(s, key, {shard < 0 ? shard : shard * so_far.parallelism.replicate});
}
Settings fsdp_if_sharded(const Setting& s, const std::string& key, const Config&) {
  return one(s, key, {std::int64_t{number_or_throw(s) == 1 ? 0 : 3}});
}

/// --data-path: a path, or weights and paths by turns. A flag's value comes as one text, words apart by spaces.
Settings weights_and_paths(const Setting& s, const std::string& key, const Config&) {
  std::vector<std::string> words;
  if (const auto* list = std::get_if<Values>(&s.value.data)) {
    for (const Value& v : *list) words.push_back(word_of(v));
  } else {
    std::istringstream in(word_of(s.value));
    for (std::string word; in >> word;) words.push_back(word);
  }
  const bool weighted = words.size() > 1 && words.size() % 2 == 0 && number_of({words[0]}).has_value();
  Settings out;
  for (std::size_t i = 0, j = 0; i < words.size(); ++i, ++j) {
    if (weighted) out.push_back({text(key, ".", j, ".weight"), {*number_of({words[i++]})}, s.place});
    out.push_back({text(key, ".", j, ".path"), {words[i]}, s.place});
  }
  return out;
}

/// A folder or a list of folders, or nanotron's older map of folders to weights (which arrives as one setting a
/// folder).
Settings folders(const Setting& s, const std::string& key, const Config&) {
  if (!std::holds_alternative<Values>(s.value.data)) return one(s, key + ".0.path", s.value);
  Settings out;
  for (const Value& folder : std::get<Values>(s.value.data))
    out.push_back({text(key, ".", out.size(), ".path"), folder, s.place});
  return out;
}
Settings weights(const Setting& s, const std::string& key, const Config&) {
  require<ConfigError>(std::holds_alternative<Values>(s.value.data), s.path, " = ", str(s.value),
                       " is not a list of weights");
  Settings out;
  for (const Value& weight : std::get<Values>(s.value.data))
    out.push_back({text(key, ".", out.size(), ".weight"), weight, s.place});
  return out;
}

// --- the table
// ------------------------------------------------------------------------------------------------------------------

void add_model_keys(std::vector<Alias>& all) {
  // GPT-2's config.json has words of its own; the rest of the families share theirs, which are ours.
  const std::vector<std::pair<const char*, const char*>> words = {{"n_embd", "hidden_size"},
                                                                  {"n_layer", "num_hidden_layers"},
                                                                  {"n_head", "num_attention_heads"},
                                                                  {"n_inner", "intermediate_size"},
                                                                  {"n_positions", "max_position_embeddings"},
                                                                  {"activation_function", "hidden_act"},
                                                                  {"layer_norm_epsilon", "norm_eps"},
                                                                  {"rms_norm_eps", "norm_eps"},
                                                                  {"attn_pdrop", "attention_dropout"},
                                                                  {"num_experts", "num_local_experts"}};
  for (const auto& [foreign, ours] : words)
    all.push_back({Framework::hf_config, text("model.", foreign), text("model.", ours), same});
  all.push_back({Framework::hf_config, "model.torch_dtype", "model.dtype", dtype});
  all.push_back({Framework::hf_config, "model.rope_scaling.type", "model.rope_scaling.rope_type", same});
  Config config;
  for (const Field& field : fields(config))
    if (field.key.starts_with("model.") && field.key != "model.preset" && field.key != "model.hf" &&
        field.key != "model.dtype" && field.key != "model.init")
      all.push_back({Framework::nanotron, "model.model_config." + field.key.substr(6), field.key, same});
  for (const auto& [foreign, ours] : words)
    all.push_back({Framework::nanotron, text("model.model_config.", foreign), text("model.", ours), same});
}

std::vector<Alias> make_aliases() {
  using enum Framework;
  std::vector<Alias> all = {
      {nanotron, "general.run", "run.name", same},
      {nanotron, "general.seed", "run.seed", same},
      {nanotron, "checkpoints.checkpoints_path", "run.dir", same},
      {nanotron, "model.ddp_bucket_cap_mb", "parallelism.bucket_mb", same},
      {nanotron, "model.init_method.std", "model.initializer_range", same},
      {nanotron, "tokenizer.tokenizer_name_or_path", "tokenizer.path", same},
      {nanotron, "data_stages.*.start_training_step", "data.*.start_step", same},
      {nanotron, "data_stages.*.sequence_length", "data.*.seq_len", same},
      {nanotron, "data_stages.*.data.dataset.dataset_folder", "data.*.sources", folders},
      {nanotron, "data_stages.*.data.dataset.dataset_weights", "data.*.sources", weights},
      {nanotron, "tokens.train_steps", "training.steps", same},
      {nanotron, "tokens.sequence_length", "training.seq_len", same},
      {nanotron, "tokens.micro_batch_size", "training.micro_batch_size", same},
      {nanotron, "tokens.batch_accumulation_per_replica", "training.grad_accum", same},
      {nanotron, "optimizer.clip_grad", "training.max_norm", same},
      {nanotron, "optimizer.optimizer_factory.name", "optimizer.name", as_lower},
      {nanotron, "optimizer.optimizer_factory.adam_beta1", "optimizer.betas", beta1, true},
      {nanotron, "optimizer.optimizer_factory.adam_beta2", "optimizer.betas", beta2, true},
      {nanotron, "optimizer.optimizer_factory.adam_eps", "optimizer.eps", same},
      {nanotron, "optimizer.weight_decay_exclude_named_params", "optimizer.no_decay", same},
      {nanotron, "optimizer.learning_rate_scheduler.learning_rate", "optimizer.lr", same},
      {nanotron, "optimizer.learning_rate_scheduler.lr_warmup_steps", "lr_scheduler.warmup_steps", same},
      {nanotron, "optimizer.learning_rate_scheduler.lr_decay_style", "lr_scheduler.decay", decay_style},
      {nanotron, "optimizer.learning_rate_scheduler.lr_decay_steps", "lr_scheduler.decay_steps", same},
      {nanotron, "optimizer.learning_rate_scheduler.min_decay_lr", "lr_scheduler.min_lr", same},
      {nanotron, "optimizer.zero_stage", "parallelism.zero", same},
      {nanotron, "optimizer.accumulate_grad_in_fp32", "precision.accumulate", float32_if_true},
      {nanotron, "parallelism.tp_mode", "parallelism.sequence_parallel", tp_mode},
      {nanotron, "parallelism.pp_engine", "parallelism.pp_schedule", schedule},
      {nanotron, "parallelism.context_parallel_size", "parallelism.cp", same},
      {nanotron, "parallelism.expert_parallel_size", "parallelism.ep", same},
      {nanotron, "parallelism.recompute_layer", "activation_checkpoint.mode", full_if_true},
      {nanotron, "checkpoints.checkpoint_interval", "checkpoint.interval", same},
      {nanotron, "checkpoints.resume_checkpoint_path", "checkpoint.resume", same},
      {nanotron, "logging.iteration_step_info_interval", "metrics.interval", same},

      {torchtitan, "job.description", "run.name", same},
      {torchtitan, "debug.seed", "run.seed", same},
      {torchtitan, "job.dump_folder", "run.dir", same},
      {torchtitan, "model.hf_assets_path", "tokenizer.path", same},
      {torchtitan, "training.mixed_precision_param", "model.dtype", dtype},
      {torchtitan, "training.mixed_precision_reduce", "precision.reduce", dtype},
      {torchtitan, "training.local_batch_size", "training.micro_batch_size", same},
      {torchtitan, "training.dataset_path", "data.0.sources.0.path", same},
      {torchtitan, "optimizer.beta1", "optimizer.betas", beta1, true},
      {torchtitan, "optimizer.beta2", "optimizer.betas", beta2, true},
      {torchtitan, "lr_scheduler.decay_ratio", "lr_scheduler.decay_steps", ratio_of_steps, true},
      {torchtitan, "lr_scheduler.decay_type", "lr_scheduler.decay", decay_style},
      {torchtitan, "lr_scheduler.min_lr_factor", "lr_scheduler.min_lr", factor_of_lr, true},
      {torchtitan, "parallelism.data_parallel_replicate_degree", "parallelism.replicate", same},
      {torchtitan, "parallelism.data_parallel_shard_degree", "parallelism.dp", shard_degree, true},
      {torchtitan, "parallelism.data_parallel_shard_degree", "parallelism.zero", fsdp_if_sharded, true},
      {torchtitan, "parallelism.tensor_parallel_degree", "parallelism.tp", same},
      {torchtitan, "parallelism.enable_sequence_parallel", "parallelism.sequence_parallel", as_truth},
      {torchtitan, "parallelism.disable_sequence_parallel", "parallelism.sequence_parallel", not_of},
      {torchtitan, "parallelism.pipeline_parallel_degree", "parallelism.pp", same},
      {torchtitan, "parallelism.pipeline_parallel_schedule", "parallelism.pp_schedule", schedule},
      {torchtitan, "parallelism.context_parallel_degree", "parallelism.cp", same},
      {torchtitan, "parallelism.expert_parallel_degree", "parallelism.ep", same},
      {torchtitan, "checkpoint.keep_latest_k", "checkpoint.keep", same},
      {torchtitan, "checkpoint.last_save_in_hf", "checkpoint.export_hf", same},
      {torchtitan, "metrics.log_freq", "metrics.interval", same},
      {torchtitan, "metrics.enable_tensorboard", "metrics.tensorboard", same},
      {torchtitan, "profiling.save_traces_folder", "profiler.dir", same},
      {torchtitan, "comm.init_timeout_seconds", "comm.init_timeout_s", same},
      {torchtitan, "comm.train_timeout_seconds", "comm.timeout_s", same},

      {megatron, "--wandb-exp-name", "run.name", same},
      {megatron, "--seed", "run.seed", same},
      {megatron, "--save", "run.dir", same},
      {megatron, "--tensorboard-dir", "metrics.tensorboard",
       [](const Setting& s, const std::string& key, const Config&) { return one(s, key, {true}); }},
      {megatron, "--hidden-size", "model.hidden_size", same},
      {megatron, "--num-layers", "model.num_hidden_layers", same},
      {megatron, "--num-attention-heads", "model.num_attention_heads", same},
      {megatron, "--num-query-groups", "model.num_key_value_heads", same},
      {megatron, "--kv-channels", "model.head_dim", same},
      {megatron, "--ffn-hidden-size", "model.intermediate_size", same},
      {megatron, "--max-position-embeddings", "model.max_position_embeddings", same},
      {megatron, "--vocab-size", "model.vocab_size", same},
      {megatron, "--norm-epsilon", "model.norm_eps", same},
      {megatron, "--rotary-base", "model.rope_theta", same},
      {megatron, "--init-method-std", "model.initializer_range", same},
      {megatron, "--attention-dropout", "model.attention_dropout", same},
      {megatron, "--hidden-dropout", "model.resid_pdrop", same},
      {megatron, "--num-experts", "model.num_local_experts", same},
      {megatron, "--moe-router-topk", "model.num_experts_per_tok", same},
      {megatron, "--moe-aux-loss-coeff", "model.router_aux_loss_coef", same},
      {megatron, "--untie-embeddings-and-output-weights", "model.tie_word_embeddings", not_of},
      {megatron, "--bf16", "model.dtype", bfloat16_if_true},
      {megatron, "--fp16", "model.dtype", float16_if_true},
      {megatron, "--tokenizer-model", "tokenizer.path", same},
      {megatron, "--data-path", "data.0.sources", weights_and_paths},
      {megatron, "--train-iters", "training.steps", same},
      {megatron, "--seq-length", "training.seq_len", same},
      {megatron, "--micro-batch-size", "training.micro_batch_size", same},
      {megatron, "--global-batch-size", "training.global_batch_size", same},
      {megatron, "--clip-grad", "training.max_norm", same},
      {megatron, "--optimizer", "optimizer.name",
       [](const Setting& s, const std::string& key, const Config&) {
         return by_table(s, key,
                         {{"adam", {"adamw"}}, {"sgd", {"sgd"}}});  // Megatron's adam decays weights apart: AdamW
       }},
      {megatron, "--lr", "optimizer.lr", same},
      {megatron, "--adam-beta1", "optimizer.betas", beta1, true},
      {megatron, "--adam-beta2", "optimizer.betas", beta2, true},
      {megatron, "--adam-eps", "optimizer.eps", same},
      {megatron, "--weight-decay", "optimizer.weight_decay", same},
      {megatron, "--lr-warmup-iters", "lr_scheduler.warmup_steps", same},
      {megatron, "--lr-decay-style", "lr_scheduler.decay", decay_style},
      {megatron, "--lr-decay-iters", "lr_scheduler.decay_steps", same},
      {megatron, "--min-lr", "lr_scheduler.min_lr", same},
      {megatron, "--use-distributed-optimizer", "parallelism.zero", one_if_true},
      {megatron, "--use-megatron-fsdp", "parallelism.zero", three_if_true},
      {megatron, "--tensor-model-parallel-size", "parallelism.tp", same},
      {megatron, "--sequence-parallel", "parallelism.sequence_parallel", as_truth},
      {megatron, "--pipeline-model-parallel-size", "parallelism.pp", same},
      {megatron, "--num-virtual-stages-per-pipeline-rank", "parallelism.virtual_stages", same},
      {megatron, "--context-parallel-size", "parallelism.cp", same},
      {megatron, "--expert-model-parallel-size", "parallelism.ep", same},
      {megatron, "--expert-tensor-parallel-size", "parallelism.expert_tp", same},
      {megatron, "--overlap-grad-reduce", "parallelism.overlap_comm", as_truth},
      {megatron, "--recompute-granularity", "activation_checkpoint.mode", as_lower},
      {megatron, "--save-interval", "checkpoint.interval", same},
      {megatron, "--load", "checkpoint.resume", same},
      {megatron, "--async-save", "checkpoint.async", as_truth},
      {megatron, "--log-interval", "metrics.interval", same},
      {megatron, "--distributed-timeout-minutes", "comm.timeout_s", minutes},
      {megatron, "--distributed-backend", "comm.backend", as_lower},

      {deepspeed, "train_micro_batch_size_per_gpu", "training.micro_batch_size", same},
      {deepspeed, "gradient_accumulation_steps", "training.grad_accum", same},
      {deepspeed, "train_batch_size", "training.global_batch_size", same},
      {deepspeed, "gradient_clipping", "training.max_norm", same},
      {deepspeed, "optimizer.type", "optimizer.name", as_lower},
      {deepspeed, "optimizer.params.lr", "optimizer.lr", same},
      {deepspeed, "optimizer.params.betas", "optimizer.betas", same},
      {deepspeed, "optimizer.params.eps", "optimizer.eps", same},
      {deepspeed, "optimizer.params.weight_decay", "optimizer.weight_decay", same},
      {deepspeed, "scheduler.params.warmup_num_steps", "lr_scheduler.warmup_steps", same},
      {deepspeed, "zero_optimization.stage", "parallelism.zero", same},
      {deepspeed, "zero_optimization.overlap_comm", "parallelism.overlap_comm", same},
      {deepspeed, "zero_optimization.stage3_max_live_parameters", "parallelism.max_live_parameters", same},
      {deepspeed, "zero_optimization.stage3_max_reuse_distance", "parallelism.max_reuse_distance", same},
      {deepspeed, "zero_optimization.stage3_param_persistence_threshold", "parallelism.persistence_threshold", same},
      {deepspeed, "tensor_parallel.autotp_size", "parallelism.tp", same},
      {deepspeed, "bf16.enabled", "model.dtype", bfloat16_if_true},
      {deepspeed, "fp16.enabled", "model.dtype", float16_if_true},
      {deepspeed, "fp16.loss_scale_window", "loss_scale.growth_interval", same},
      {deepspeed, "fp16.hysteresis", "loss_scale.hysteresis", same},
      {deepspeed, "steps_per_print", "metrics.interval", same},

      {hf_trainer, "run_name", "run.name", same},
      {hf_trainer, "seed", "run.seed", same},
      {hf_trainer, "output_dir", "run.dir", same},
      {hf_trainer, "bf16", "model.dtype", bfloat16_if_true},
      {hf_trainer, "fp16", "model.dtype", float16_if_true},
      {hf_trainer, "max_steps", "training.steps", same},
      {hf_trainer, "per_device_train_batch_size", "training.micro_batch_size", same},
      {hf_trainer, "max_grad_norm", "training.max_norm", same},
      {hf_trainer, "learning_rate", "optimizer.lr", same},
      {hf_trainer, "adam_beta1", "optimizer.betas", beta1, true},
      {hf_trainer, "adam_beta2", "optimizer.betas", beta2, true},
      {hf_trainer, "adam_epsilon", "optimizer.eps", same},
      {hf_trainer, "weight_decay", "optimizer.weight_decay", same},
      {hf_trainer, "warmup_steps", "lr_scheduler.warmup_steps", same},
      {hf_trainer, "lr_scheduler_type", "lr_scheduler.decay", decay_style},
      {hf_trainer, "gradient_checkpointing", "activation_checkpoint.mode", full_if_true},
      {hf_trainer, "save_steps", "checkpoint.interval", same},
      {hf_trainer, "resume_from_checkpoint", "checkpoint.resume", same},
      {hf_trainer, "save_total_limit", "checkpoint.keep", same},
      {hf_trainer, "logging_steps", "metrics.interval", same},
      {hf_trainer, "ddp_timeout", "comm.timeout_s", same},
  };
  add_model_keys(all);
  return all;
}

/// Whether `path` is `pattern` with a number for its *; that number.
std::optional<std::string> match(const std::string& pattern, const std::string& path) {
  const std::size_t star = pattern.find('*');
  if (star == std::string::npos) return pattern == path ? std::optional(std::string()) : std::nullopt;
  const std::string_view head = std::string_view(pattern).substr(0, star),
                         tail = std::string_view(pattern).substr(star + 1);
  if (path.size() <= head.size() + tail.size() || !path.starts_with(head) || !path.ends_with(tail)) return std::nullopt;
  const std::string index = path.substr(star, path.size() - head.size() - tail.size());
  return std::ranges::all_of(index, [](unsigned char c) { return std::isdigit(c) != 0; }) ? std::optional(index)
                                                                                          : std::nullopt;
}

}  // namespace

const char* name(Framework framework) {
  constexpr const char* kNames[] = {"nanotron", "torchtitan", "Megatron", "DeepSpeed", "HF Trainer", "config.json"};
  return kNames[static_cast<std::size_t>(framework)];
}

const std::vector<Alias>& aliases() {
  static const std::vector<Alias> all = make_aliases();
  return all;
}

std::vector<AliasMatch> find_aliases(const std::string& path) {
  std::vector<AliasMatch> found;
  const auto add = [&](const Alias& alias, const std::string& index) {
    if (!found.empty() && found.front().alias->framework != alias.framework) return;
    std::string key = alias.key;
    if (const std::size_t star = key.find('*'); star != std::string::npos) key.replace(star, 1, index);
    found.push_back({&alias, key});
  };
  for (const Alias& alias : aliases())
    if (const auto index = match(alias.foreign, path)) add(alias, *index);
  if (found.empty())
    for (const Alias& alias : aliases())
      if (alias.foreign.find('*') == std::string::npos && path == section_of(alias.key) + "." + leaf_of(alias.foreign))
        add(alias, "");
  return found;
}

FlagWords words_of_flag(const Alias& alias) {
  const auto is = [&](auto... translations) { return ((alias.translate == translations) || ...); };
  if (is(weights_and_paths)) return FlagWords::many;
  return is(as_truth, not_of, bfloat16_if_true, float16_if_true, float32_if_true, full_if_true, one_if_true,
            three_if_true)
             ? FlagWords::none
             : FlagWords::one;
}

std::string foreign_name(const std::string& key, Framework framework) {
  for (const Alias& alias : aliases())
    if (alias.framework == framework && alias.key == key) return alias.foreign;
  return "";
}

std::string other_names(const std::string& key) {
  std::string names;
  int count = 0;
  for (const Framework framework : {Framework::nanotron, Framework::torchtitan, Framework::megatron}) {
    const std::string foreign = foreign_name(key, framework);
    if (foreign.empty() || count == 2) continue;
    names +=
        text(count++ ? ", " : "", name(framework), ": ", framework == Framework::megatron ? foreign : leaf_of(foreign));
  }
  return count == 0 ? "" : text("(", names, count == 2 ? " both work)" : " works too)");
}

}  // namespace trireme
