#include "trireme/config/import/harmless.hpp"

#include <map>

#include "trireme/base/name_pattern.hpp"

namespace trireme::config {
namespace {

/// Globs of foreign keys. A whole section is one only if no key of it can change what is trained.
std::vector<std::string> harmless_keys(Framework from) {
  switch (from) {
    case Framework::nanotron:
      return {"general.project",
              "general.entity",
              "general.benchmark_csv_path",
              "general.ignore_sanity_checks",
              "checkpoints.checkpoints_path_is_shared_file_system",
              "checkpoints.save_*",
              "logging.*",
              "profiler.*",
              "s3_upload.*",
              "lighteval.*",
              "metrics_logging.*",
              "data_stages.*.name",
              "data_stages.*.dataset.token_size_in_bytes",
              "data_stages.*.dataset.tokenizer_name",
              "data_stages.*.dataset.vocab_size",
              "data_stages.*.num_loading_workers",
              "data_stages.*.data.num_loading_workers",
              "model.model_config.*_token_id",
              "model.model_config.use_cache",
              "model.model_config.is_*_config",
              "model.model_config._attn_implementation",
              "model.model_config._fused_*",
              "model.model_config._use_qkv_packed",
              "model.model_config.pretraining_tp",
              "optimizer.*.torch_adam_is_fused",
              "parallelism.tp_linear_async_communication",
              "parallelism.tp_recompute_allgather",
              "tokenizer.tokenizer_revision",
              "tokenizer.tokenizer_max_length",
              "tokens.limit_*",
              "tokens.val_check_interval"};
    case Framework::torchtitan:
      return {"job.config_file", "job.print_*", "job.use_for_integration_test", "profiling.*", "metrics.*",
              "checkpoint.enable", "checkpoint.enable_checkpoint", "checkpoint.enable_first_step_checkpoint",
              "checkpoint.enable_ft_dataloader_checkpoints", "checkpoint.folder", "checkpoint.interval_type",
              "checkpoint.async_mode", "checkpoint.export_dtype", "checkpoint.last_save_*",
              "checkpoint.model_weights_only", "checkpoint.create_seed_checkpoint", "checkpoint.load_only",
              // Without a path nothing is loaded; the path is looked at in import.cpp.
              "checkpoint.initial_load_in_hf", "checkpoint.initial_load_model_only", "compile.*", "comm.*",
              "fault_tolerance.process_group*", "fault_tolerance.replica_id", "fault_tolerance.group_size",
              "fault_tolerance.min_replica_size", "memory_estimation.*", "debug.deterministic*", "debug.print_config",
              "debug.save_config_*", "activation_checkpoint.*", "training.gc_*", "training.compile",
              "training.enable_cpu_offload", "training.dataloader.*", "parallelism.fsdp_reshard_after_forward",
              "parallelism.enable_async_tensor_parallel", "parallelism.*_loss_parallel",
              "parallelism.pipeline_parallel_*_expert*", "parallelism.pipeline_parallel_microbatch_size",
              "parallelism.pipeline_parallel_split_points", "parallelism.pipeline_parallel_first_stage_less_layers",
              "parallelism.pipeline_parallel_last_stage_less_layers", "parallelism.enable_compiled_autograd",
              "parallelism.module_fqns_per_model_part", "parallelism.context_parallel_*", "optimizer.implementation",
              "model.print_after_conversion", "validation.*"};
    case Framework::megatron:
      return {"--log-*",
              "--tensorboard-*",
              "--wandb-*",
              "--save*",
              "--ckpt-*",
              "--auto-detect-ckpt-format",
              "--exit-signal-*",
              "--exit-duration-in-mins",
              "--eval-*",
              "--no-save-*",
              "--num-workers",
              "--nproc*",
              "--nnodes",
              "--node_rank",
              "--master_*",
              "--distributed-*",
              "--use-flash-attn",
              "--attention-backend",
              "--transformer-impl",
              "--use-mcore-models",
              "--no-*-fusion",
              "--no-async-tensor-model-parallel-allreduce",
              "--overlap-*",
              "--no-overlap-*",
              "--tp-comm-*",
              "--recompute-*",
              "--distribute-saved-activations",
              "--tokenizer-type",
              "--merge-file",
              "--timing-*",
              "--profile*",
              "--dataloader-type",
              "--data-cache-path",
              "--no-mmap*",
              "--manual-gc*",
              "--cross-entropy-*",
              "--no-create-attention-mask-in-dataloader",
              "--attention-softmax-in-fp32",
              "--ddp-*",
              "--accumulate-allreduce-grads-in-fp32",
              "--empty-unused-memory-level"};
    case Framework::deepspeed:
    case Framework::hf_trainer:
      return {"steps_per_print",
              "wall_clock_breakdown",
              "memory_breakdown",
              "dump_state",
              "comms_logger.*",
              "flops_profiler.*",
              "tensorboard.*",
              "wandb.*",
              "csv_monitor.*",
              "aio.*",
              "zero_optimization.stage3_*",
              "zero_optimization.offload_*",
              "zero_optimization.cpu_offload*",
              "zero_optimization.allgather_*",
              "zero_optimization.sub_group_size",
              "zero_optimization.round_robin_gradients",
              "zero_optimization.use_multi_rank_bucket_allreduce",
              "zero_optimization.ignore_unused_parameters",
              "zero_optimization.legacy_stage1",
              "zero_optimization.load_from_fp32_weights",
              "zero_optimization.elastic_checkpoint",
              "zero_optimization.zero_hpz_partition_size",
              "zero_optimization.mics_*",
              "zero_optimization.memory_efficient_linear",
              "zero_optimization.param_persistence_threshold",
              "zero_optimization.model_persistence_threshold",
              "zero_optimization.prefetch_bucket_size",
              "zero_optimization.max_*",
              "zero_optimization.gather_16bit_weights_on_model_save",
              "zero_optimization.pipeline_loading_checkpoint",
              "zero_optimization.override_module_apply",
              "zero_allow_untested_optimizer",
              "zero_force_ds_cpu_optimizer",
              "activation_checkpointing.*",
              "autotuning.*",
              "report_to",
              "logging_*",
              "save_*",
              "eval_*",
              "do_*",
              "dataloader_*",
              "push_to_hub*",
              "hub_*",
              "log_level*",
              "log_on_each_node",
              "overwrite_output_dir",
              "remove_unused_columns",
              "disable_tqdm",
              "ddp_*",
              "torch_compile*",
              "metric_for_best_model",
              "greater_is_better",
              "fsdp_config.*",
              "fsdp_*",
              "gradient_checkpointing_kwargs.*",
              "include_*",
              "label_names",
              "local_rank",
              "torch_empty_cache_steps",
              "prediction_loss_only",
              "per_device_eval_batch_size",
              "project",
              "trackio_space_id",
              "skip_memory_metrics",
              "restore_callback_states_from_checkpoint"};
    case Framework::hf_config: return {"*"};
  }
  return {};
}

/// Globs of switches that change what is trained if they are on, and that are off by that trainer's default.
std::vector<std::string> off_by_default(Framework from) {
  switch (from) {
    case Framework::nanotron:
      return {"model.model_config.rope_interleaved", "model.model_config.log_attn_probs",
              "data_stages.*.pad_samples_to_global_batch_size", "data_stages.*.return_positions",
              "parallelism.moe_layer_recompute"};
    case Framework::torchtitan:
      return {"checkpoint.initial_load_in_hf_quantized",
              "debug.moe_force_load_balance",
              "training.debug_moe_force_load_balance",
              "training.deterministic",
              "fault_tolerance.enable",
              "optimizer.early_step_in_backward",
              "parallelism.enable_*",
              "experimental.enable_*",
              "quantize.*"};
    case Framework::megatron: return {};  // a flag that is given is on
    case Framework::deepspeed:
    case Framework::hf_trainer:
      return {"*.enabled",
              "amp",
              "prescale_gradients",
              "sparse_gradients",
              "disable_allgather",
              "bf16.bf16_*",
              "fp16.auto_cast",
              "fp16.fp16_master_weights_and_grads",
              "optimizer.params.amsgrad",
              "optimizer.params.torch_adam",
              "optimizer.legacy_fusion",
              "zero_optimization.zero_quantized_*",
              "accelerator_config.split_batches",
              "accelerator_config.non_blocking",
              "accelerator_config.use_configured_state",
              "adafactor",
              "auto_find_batch_size",
              "batch_eval_metrics",
              "bf16_full_eval",
              "debug",
              "fp16_full_eval",
              "full_determinism",
              "group_by_length",
              "ignore_data_skip",
              "jit_mode_eval",
              "load_best_model_at_end",
              "no_cuda",
              "tf32",
              "tpu_metrics_debug",
              "use_cpu",
              "use_ipex",
              "use_legacy_prediction_loop",
              "use_liger_kernel",
              "use_mps_device"};
    case Framework::hf_config: return {};
  }
  return {};
}

/// Globs of switches that change what is trained if they are off, and that are on by that trainer's default.
std::vector<std::string> on_by_default(Framework from) {
  switch (from) {
    case Framework::nanotron: return {"checkpoints.load_optimizer", "checkpoints.load_lr_scheduler"};
    case Framework::deepspeed:
    case Framework::hf_trainer:
      return {"optimizer.params.bias_correction", "optimizer.params.adam_w_mode", "accelerator_config.even_batches",
              "accelerator_config.use_seedable_sampler"};
    case Framework::torchtitan:
    case Framework::megatron:
    case Framework::hf_config: break;
  }
  return {};
}

bool is_the_default(Framework from, const Setting& setting) {
  const auto* on = std::get_if<bool>(&setting.value.data);
  return on != nullptr && matches_any(name_patterns(*on ? on_by_default(from) : off_by_default(from)), setting.path);
}

bool is_empty(const Value& value) {
  if (const auto* list = std::get_if<Values>(&value.data)) return list->empty();
  if (const auto* word = std::get_if<std::string>(&value.data)) return word->empty();
  return std::holds_alternative<Nothing>(value.data);
}

}  // namespace

bool changes_nothing(Framework from, const Setting& setting) {
  return is_empty(setting.value) || is_the_default(from, setting) ||
         matches_any(name_patterns(harmless_keys(from)), setting.path);
}

}  // namespace trireme::config
