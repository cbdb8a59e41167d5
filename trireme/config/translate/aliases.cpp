#include "trireme/config/translate/aliases.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/fields.hpp"

namespace trireme::config {
namespace {

using namespace translations;

void add_model_keys(std::vector<Alias>& all) {
  // GPT-2's config.json has its own names; the other families share the names that we use.
  const std::vector<std::pair<const char*, const char*>> words = {{"n_embd", "hidden_size"},
                                                                  {"n_layer", "num_hidden_layers"},
                                                                  {"n_head", "num_attention_heads"},
                                                                  {"n_inner", "intermediate_size"},
                                                                  {"n_positions", "max_position_embeddings"},
                                                                  {"activation_function", "hidden_act"},
                                                                  {"hidden_activation", "hidden_act"},
                                                                  {"layer_norm_epsilon", "norm_eps"},
                                                                  {"rms_norm_eps", "norm_eps"},
                                                                  {"attn_pdrop", "attention_dropout"},
                                                                  {"num_experts", "num_local_experts"}};
  for (const auto& [foreign, ours] : words)
    all.push_back({Framework::hf_config, text("model.", foreign), text("model.", ours), same});
  all.push_back({Framework::hf_config, "model.torch_dtype", "model.dtype", dtype});
  all.push_back({Framework::hf_config, "model.rope_scaling.type", "model.rope_scaling.rope_type", same});
  // nanotron's model sizes have the same names; the init standard deviation comes from its init_method, not from here.
  const std::vector<std::string> elsewhere = {
      "model.preset",     "model.hf", "model.dtype", "model.init", "model.vocab_multiple", "model.initializer_range",
      "model.initializer"};
  Config config;
  for (const Field& field : fields(config))
    if (field.key.starts_with("model.") && std::ranges::find(elsewhere, field.key) == elsewhere.end())
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
      {nanotron, "model.init_method.scaling_method", "model.initializer", nanotron_scaling},
      {nanotron, "tokenizer.tokenizer_name_or_path", "tokenizer.path", same},
      {nanotron, "data_stages.*.start_training_step", "data.*.start_step", same},
      {nanotron, "data_stages.*.sequence_length", "data.*.seq_len", same},
      {nanotron, "data_stages.*.data.dataset.dataset_folder", "data.*.sources", folders},
      {nanotron, "data_stages.*.data.dataset.dataset_weights", "data.*.sources", weights},
      {nanotron, "data_stages.*.data.dataset.return_positions", "data.*.positions", document_if_true},
      {nanotron, "data_stages.*.dataset.return_positions", "data.*.positions", document_if_true},
      {nanotron, "model.model_config._use_doc_masking", "data.*.attention", document_in_every_stage, 1},
      {nanotron, "model.make_vocab_size_divisible_by", "model.vocab_multiple", times_tp, 1},
      {nanotron, "tokens.train_steps", "training.steps", same},
      {nanotron, "tokens.sequence_length", "training.seq_len", same},
      {nanotron, "tokens.micro_batch_size", "training.micro_batch_size", same},
      {nanotron, "tokens.batch_accumulation_per_replica", "training.grad_accum", same},
      {nanotron, "optimizer.clip_grad", "training.max_norm", same},
      {nanotron, "model.model_config.z_loss_enabled", "training.z_loss_coef", nanotron_z_loss},
      {nanotron, "model.model_config.z_loss_coefficient", "training.z_loss_coef", if_positive, 1},
      {nanotron, "optimizer.optimizer_factory.name", "optimizer.name", as_lower},
      {nanotron, "optimizer.optimizer_factory.adam_beta1", "optimizer.betas", beta1, 1},
      {nanotron, "optimizer.optimizer_factory.adam_beta2", "optimizer.betas", beta2, 1},
      {nanotron, "optimizer.optimizer_factory.adam_eps", "optimizer.eps", same},
      {nanotron, "optimizer.weight_decay_exclude_named_params", "optimizer.no_decay", nanotron_no_decay, 1},
      {nanotron, "optimizer.learning_rate_scheduler.learning_rate", "optimizer.lr", same},
      {nanotron, "optimizer.learning_rate_scheduler.lr_warmup_steps", "lr_scheduler.warmup_steps", same},
      {nanotron, "optimizer.learning_rate_scheduler.lr_decay_style", "lr_scheduler.decay", nanotron_decay},
      {nanotron, "optimizer.learning_rate_scheduler.lr_decay_starting_step", "lr_scheduler.decay_start_step", same},
      {nanotron, "optimizer.learning_rate_scheduler.lr_decay_steps", "lr_scheduler.decay_steps", length_after_warmup,
       1},
      {nanotron, "optimizer.learning_rate_scheduler.lr_warmup_style", "lr_scheduler.warmup_steps", constant_warmup, 2},
      {nanotron, "optimizer.learning_rate_scheduler.min_decay_lr", "lr_scheduler.min_lr", same},
      {nanotron, "optimizer.zero_stage", "parallelism.zero", same},
      {nanotron, "optimizer.accumulate_grad_in_fp32", "precision.accumulate", float32_if_true},
      {nanotron, "parallelism.tp_mode", "parallelism.sequence_parallel", tp_mode},
      {nanotron, "parallelism.pp_engine", "parallelism.pp_schedule", nanotron_engine},
      {nanotron, "parallelism.context_parallel_size", "parallelism.cp", same},
      {nanotron, "parallelism.expert_parallel_size", "parallelism.ep", same},
      {nanotron, "parallelism.recompute_layer", "activation_checkpoint.mode", full_if_true},
      {nanotron, "checkpoints.checkpoint_interval", "checkpoint.interval", same},
      {nanotron, "checkpoints.resume_checkpoint_path", "checkpoint.resume", resume},
      {nanotron, "logging.iteration_step_info_interval", "metrics.interval", same},
      {nanotron, "profiler.profiler_export_path", "profiler.dir", same},

      {torchtitan, "job.description", "run.name", same},
      {torchtitan, "debug.seed", "run.seed", same},
      {torchtitan, "job.dump_folder", "run.dir", same},
      {torchtitan, "model.hf_assets_path", "tokenizer.path", same},
      {torchtitan, "model.tokenizer_path", "tokenizer.path", same},
      {torchtitan, "training.mixed_precision_param", "model.dtype", dtype},
      {torchtitan, "training.mixed_precision_reduce", "precision.reduce", dtype},
      {torchtitan, "training.local_batch_size", "training.micro_batch_size", same},
      {torchtitan, "training.dataset_path", "data.0.sources.0.path", same},
      {torchtitan, "training.dataset", "data.0.sources.0.path", dataset_unless_path, 1},
      {torchtitan, "training.max_context_length", "training.seq_len", same},
      {torchtitan, "training.num_tokens_per_microbatch_per_dp_rank", "training.micro_batch_size", tokens_as_sequences,
       1},
      {torchtitan, "training.num_tokens_per_train_step", "training.global_batch_size", tokens_as_sequences, 1},
      {torchtitan, "optimizer.beta1", "optimizer.betas", beta1, 1},
      {torchtitan, "optimizer.beta2", "optimizer.betas", beta2, 1},
      {torchtitan, "lr_scheduler.decay_ratio", "lr_scheduler.decay_steps", ratio_of_steps, 1},
      {torchtitan, "lr_scheduler.decay_type", "lr_scheduler.decay", torchtitan_decay},
      {torchtitan, "lr_scheduler.min_lr_factor", "lr_scheduler.min_lr", factor_of_lr, 1},
      {torchtitan, "lr_scheduler.lr_min", "lr_scheduler.min_lr", factor_of_lr, 1},
      {torchtitan, "parallelism.data_parallel_replicate_degree", "parallelism.replicate", same},
      {torchtitan, "parallelism.data_parallel_shard_degree", "parallelism.dp", shard_degree, 1},
      {torchtitan, "parallelism.data_parallel_shard_degree", "parallelism.zero", fsdp_if_sharded, 1},
      {torchtitan, "parallelism.tensor_parallel_degree", "parallelism.tp", same},
      {torchtitan, "parallelism.enable_sequence_parallel", "parallelism.sequence_parallel", as_truth},
      {torchtitan, "parallelism.disable_sequence_parallel", "parallelism.sequence_parallel", not_of},
      {torchtitan, "parallelism.pipeline_parallel_degree", "parallelism.pp", same},
      {torchtitan, "parallelism.pipeline_parallel_schedule", "parallelism.pp_schedule", schedule},
      {torchtitan, "parallelism.context_parallel_degree", "parallelism.cp", same},
      {torchtitan, "parallelism.expert_parallel_degree", "parallelism.ep", same},
      {torchtitan, "checkpoint.load_step", "checkpoint.resume", resume},
      {torchtitan, "checkpoint.keep_latest_k", "checkpoint.keep", same},
      {torchtitan, "checkpoint.last_save_in_hf", "checkpoint.export_hf", same},
      {torchtitan, "metrics.log_freq", "metrics.interval", same},
      {torchtitan, "metrics.enable_tensorboard", "metrics.tensorboard", same},
      {torchtitan, "profiling.save_traces_folder", "profiler.dir", same},
      {torchtitan, "profiling.profiler_warmup", "profiler.warmup", same},
      {torchtitan, "profiling.profiler_active", "profiler.active", same},
      {torchtitan, "profiling.enable_memory_snapshot", "profiler.memory_snapshot", memory_snapshot},
      {torchtitan, "comm.init_timeout_seconds", "comm.init_timeout_s", same},
      {torchtitan, "comm.train_timeout_seconds", "comm.timeout_s", same},

      {megatron, "--wandb-exp-name", "run.name", same},
      {megatron, "--seed", "run.seed", same},
      {megatron, "--save", "run.dir", same},
      {megatron, "--tensorboard-dir", "run.dir", folder_unless_given, 1},
      {megatron, "--hidden-size", "model.hidden_size", same},
      {megatron, "--num-layers", "model.num_hidden_layers", same},
      {megatron, "--num-attention-heads", "model.num_attention_heads", same},
      {megatron, "--num-query-groups", "model.num_key_value_heads", same},
      {megatron, "--kv-channels", "model.head_dim", same},
      {megatron, "--ffn-hidden-size", "model.intermediate_size", same},
      {megatron, "--max-position-embeddings", "model.max_position_embeddings", same},
      {megatron, "--vocab-size", "model.vocab_size", same},
      {megatron, "--make-vocab-size-divisible-by", "model.vocab_multiple", times_tp, 1},
      {megatron, "--norm-epsilon", "model.norm_eps", same},
      {megatron, "--rotary-base", "model.rope_theta", same},
      {megatron, "--init-method-std", "model.initializer_range", same},
      {megatron, "--attention-dropout", "model.attention_dropout", same},
      {megatron, "--hidden-dropout", "model.resid_pdrop", hidden_dropout},
      {megatron, "--num-experts", "model.num_local_experts", same},
      {megatron, "--moe-router-topk", "model.num_experts_per_tok", same},
      {megatron, "--moe-aux-loss-coeff", "model.router_aux_loss_coef", same},
      {megatron, "--untie-embeddings-and-output-weights", "model.tie_word_embeddings", not_of},
      {megatron, "--bf16", "model.dtype", bfloat16_if_true},
      {megatron, "--fp16", "model.dtype", float16_if_true},
      {megatron, "--tokenizer-model", "tokenizer.path", same},
      {megatron, "--vocab-file", "tokenizer.path", vocab_file, 1},
      {megatron, "--data-path", "data.0.sources", weights_and_paths},
      {megatron, "--reset-attention-mask", "data.0.attention", document_if_true},
      {megatron, "--reset-position-ids", "data.0.positions", document_if_true},
      {megatron, "--train-iters", "training.steps", same},
      {megatron, "--seq-length", "training.seq_len", same},
      {megatron, "--micro-batch-size", "training.micro_batch_size", same},
      {megatron, "--global-batch-size", "training.global_batch_size", same},
      {megatron, "--clip-grad", "training.max_norm", same},
      {megatron, "--optimizer", "optimizer.name", adam_is_adamw},
      {megatron, "--lr", "optimizer.lr", same},
      {megatron, "--adam-beta1", "optimizer.betas", beta1, 1},
      {megatron, "--adam-beta2", "optimizer.betas", beta2, 1},
      {megatron, "--adam-eps", "optimizer.eps", same},
      {megatron, "--weight-decay", "optimizer.weight_decay", same},
      {megatron, "--lr-warmup-iters", "lr_scheduler.warmup_steps", same},
      {megatron, "--lr-decay-style", "lr_scheduler.decay", megatron_decay},
      {megatron, "--lr-decay-iters", "lr_scheduler.decay_end_step", same},
      {megatron, "--lr-decay-samples", "lr_scheduler.decay_end_step", samples_as_steps, 1},
      {megatron, "--lr-warmup-samples", "lr_scheduler.warmup_steps", samples_as_steps, 1},
      {megatron, "--lr-wsd-decay-iters", "lr_scheduler.decay_steps", wsd_length, 1},
      {megatron, "--lr-wsd-decay-samples", "lr_scheduler.decay_steps", wsd_samples, 1},
      {megatron, "--lr-wsd-decay-style", "lr_scheduler.decay", wsd_style, 2},
      {megatron, "--train-samples", "training.steps", train_samples, 2},
      {megatron, "--lr-warmup-fraction", "lr_scheduler.warmup_steps", fraction_of_decay, 3},
      {megatron, "--lr-warmup-init", "lr_scheduler.start_lr", same},
      {megatron, "--min-lr", "lr_scheduler.min_lr", same},
      {megatron, "--use-distributed-optimizer", "parallelism.zero", one_if_true},
      {megatron, "--use-megatron-fsdp", "parallelism.zero", three_if_true},
      {megatron, "--tensor-model-parallel-size", "parallelism.tp", same},
      {megatron, "--sequence-parallel", "parallelism.sequence_parallel", as_truth},
      {megatron, "--pipeline-model-parallel-size", "parallelism.pp", same},
      {megatron, "--num-virtual-stages-per-pipeline-rank", "parallelism.virtual_stages", virtual_stages},
      {megatron, "--num-layers-per-virtual-pipeline-stage", "parallelism.virtual_stages", layers_of_virtual_stage, 1},
      {megatron, "--context-parallel-size", "parallelism.cp", same},
      {megatron, "--expert-model-parallel-size", "parallelism.ep", same},
      {megatron, "--expert-tensor-parallel-size", "parallelism.expert_tp", same},
      {megatron, "--overlap-grad-reduce", "parallelism.overlap_comm", as_truth},
      {megatron, "--recompute-granularity", "activation_checkpoint.mode", as_lower},
      {megatron, "--recompute-activations", "activation_checkpoint.mode", selective_if_true},
      {megatron, "--save-interval", "checkpoint.interval", same},
      {megatron, "--load", "checkpoint.resume", resume},
      {megatron, "--async-save", "checkpoint.async", as_truth},
      {megatron, "--log-interval", "metrics.interval", same},
      {megatron, "--profile", "profiler.steps", profile},
      {megatron, "--profile-step-start", "profiler.steps", first_profiled, 1},
      {megatron, "--profile-step-end", "profiler.steps", last_profiled, 1},
      {megatron, "--distributed-timeout-minutes", "comm.timeout_s", minutes},
      {megatron, "--distributed-backend", "comm.backend", as_lower},

      {deepspeed, "train_micro_batch_size_per_gpu", "training.micro_batch_size", same},
      {deepspeed, "gradient_accumulation_steps", "training.grad_accum", same},
      {deepspeed, "train_batch_size", "training.global_batch_size", same},
      {deepspeed, "gradient_clipping", "training.max_norm", same},
      {deepspeed, "optimizer.type", "optimizer.name", adam_is_adamw},
      {deepspeed, "optimizer.params.lr", "optimizer.lr", same},
      {deepspeed, "optimizer.params.betas", "optimizer.betas", same},
      {deepspeed, "optimizer.params.eps", "optimizer.eps", same},
      {deepspeed, "optimizer.params.weight_decay", "optimizer.weight_decay", same},
      {deepspeed, "scheduler.type", "lr_scheduler.decay", deepspeed_scheduler},
      {deepspeed, "scheduler.params.warmup_num_steps", "lr_scheduler.warmup_steps", same},
      {deepspeed, "scheduler.params.warmup_min_lr", "lr_scheduler.start_lr", same},
      {deepspeed, "scheduler.params.warmup_max_lr", "optimizer.lr", peak_lr, 1},
      {deepspeed, "scheduler.params.warmup_type", "lr_scheduler.warmup_shape", as_lower},
      {deepspeed, "scheduler.params.warmup_min_ratio", "lr_scheduler.start_lr", factor_of_lr, 2},
      {deepspeed, "scheduler.params.cos_min_ratio", "lr_scheduler.min_lr", factor_of_lr, 2},
      {deepspeed, "scheduler.params.total_num_steps", "training.steps", same},
      {deepspeed, "zero_optimization.stage", "parallelism.zero", same},
      {deepspeed, "zero_optimization.overlap_comm", "parallelism.overlap_comm", same},
      {deepspeed, "zero_optimization.reduce_scatter", "parallelism.reduce_scatter", same},
      {deepspeed, "zero_optimization.contiguous_gradients", "parallelism.contiguous_gradients", same},
      {deepspeed, "zero_optimization.reduce_bucket_size", "parallelism.bucket_mb", elements_as_mb, 1},
      {deepspeed, "zero_optimization.stage3_max_live_parameters", "parallelism.max_live_parameters", same},
      {deepspeed, "zero_optimization.stage3_max_reuse_distance", "parallelism.max_reuse_distance", same},
      {deepspeed, "zero_optimization.stage3_param_persistence_threshold", "parallelism.persistence_threshold", same},
      {deepspeed, "tensor_parallel.autotp_size", "parallelism.tp", same},
      {deepspeed, "moe.ep_size", "parallelism.ep", same},
      {deepspeed, "activation_checkpointing.partition_activations", "activation_checkpoint.mode", full_if_true},
      {deepspeed, "flops_profiler.enabled", "profiler.steps", first_step_if_true},
      {deepspeed, "flops_profiler.profile_step", "profiler.steps", first_profiled, 1},
      {deepspeed, "bf16.enabled", "model.dtype", bfloat16_if_true},
      {deepspeed, "fp16.enabled", "model.dtype", float16_if_true},
      {deepspeed, "fp16.initial_scale_power", "loss_scale.initial", power_of_two},
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
      {hf_trainer, "label_smoothing_factor", "training.label_smoothing", same},
      {hf_trainer, "learning_rate", "optimizer.lr", same},
      {hf_trainer, "optim", "optimizer.name", hf_optim},
      {hf_trainer, "adam_beta1", "optimizer.betas", beta1, 1},
      {hf_trainer, "adam_beta2", "optimizer.betas", beta2, 1},
      {hf_trainer, "adam_epsilon", "optimizer.eps", same},
      {hf_trainer, "weight_decay", "optimizer.weight_decay", same},
      {hf_trainer, "warmup_steps", "lr_scheduler.warmup_steps", hf_warmup_steps, 1},
      {hf_trainer, "warmup_ratio", "lr_scheduler.warmup_steps", hf_warmup_ratio, 2},
      {hf_trainer, "lr_scheduler_type", "lr_scheduler.decay", hf_decay},
      {hf_trainer, "lr_scheduler_type", "lr_scheduler.warmup_steps", hf_constant, 3},
      {hf_trainer, "lr_scheduler_type", "lr_scheduler.decay_steps", hf_time_scale, 3},
      {hf_trainer, "lr_scheduler_kwargs.min_lr", "lr_scheduler.min_lr", same},
      {hf_trainer, "lr_scheduler_kwargs.min_lr_rate", "lr_scheduler.min_lr", factor_of_lr, 1},
      {hf_trainer, "lr_scheduler_kwargs.min_lr_ratio", "lr_scheduler.min_lr", hf_min_ratio, 1},
      {hf_trainer, "lr_scheduler_kwargs.lr_end", "lr_scheduler.min_lr", same},
      {hf_trainer, "lr_scheduler_kwargs.power", "lr_scheduler.decay", only_one},
      {hf_trainer, "lr_scheduler_kwargs.timescale", "lr_scheduler.decay_steps", same},
      {hf_trainer, "lr_scheduler_kwargs.num_decay_steps", "lr_scheduler.decay_steps", same},
      {hf_trainer, "lr_scheduler_kwargs.decay_type", "lr_scheduler.decay", hf_wsd_style, 1},
      {hf_trainer, "fsdp", "parallelism.zero", hf_fsdp},
      {hf_trainer, "gradient_checkpointing", "activation_checkpoint.mode", full_if_true},
      {hf_trainer, "save_steps", "checkpoint.interval", same},
      {hf_trainer, "resume_from_checkpoint", "checkpoint.resume", resume},
      {hf_trainer, "save_total_limit", "checkpoint.keep", same},
      {hf_trainer, "logging_steps", "metrics.interval", same},
      {hf_trainer, "ddp_timeout", "comm.timeout_s", same},
  };
  add_model_keys(all);
  return all;
}

/// If `path` is `pattern` with a number for its *, that number.
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

/// Whether the last word alone is specific enough: lr_warmup_steps is, "stage", "enabled" and "type" are not.
bool is_telling(const std::string& leaf) { return leaf.find_first_of("_-") != std::string::npos; }

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
    // A foreign key without an index is of every stage: its translation fills in ours.
    if (const std::size_t star = key.find('*'); star != std::string::npos && !index.empty())
      key.replace(star, 1, index);
    found.push_back({&alias, key});
  };
  for (const Alias& alias : aliases())
    if (const auto index = match(alias.foreign, path)) add(alias, *index);
  if (found.empty())
    for (const Alias& alias : aliases()) {
      const std::string leaf = leaf_of(alias.foreign);
      const bool one_place = alias.foreign.find('*') == std::string::npos;
      if (one_place && is_telling(leaf) && path == section_of(alias.key) + "." + leaf) add(alias, "");
    }
  return found;
}

std::string foreign_name(const std::string& key, Framework framework) {
  static const std::map<std::pair<std::string, Framework>, std::string> names = [] {
    std::map<std::pair<std::string, Framework>, std::string> first;
    for (const Alias& alias : aliases()) first.try_emplace({alias.key, alias.framework}, alias.foreign);
    return first;
  }();
  const auto it = names.find({key, framework});
  return it == names.end() ? "" : it->second;
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

}  // namespace trireme::config
