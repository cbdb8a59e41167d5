#include "trireme/config/foreign/harmless.hpp"

#include <map>

#include "trireme/base/name_pattern.hpp"

namespace trireme::config {
namespace {

/// Globs of foreign keys.
std::vector<std::string> harmless_keys(Framework from) {
  switch (from) {
    case Framework::nanotron:
      return {"general.*",
              "checkpoints.*",
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
              "model.make_vocab_size_divisible_by",
              "model.model_config.*_token_id",
              "model.model_config.use_cache",
              "model.model_config.is_*_config",
              "model.model_config._attn_implementation",
              "model.model_config._fused_*",
              "model.model_config._use_*",
              "model.model_config.pretraining_tp",
              "optimizer.*.torch_adam_is_fused",
              "parallelism.tp_linear_async_communication",
              "parallelism.tp_recompute_allgather",
              "tokenizer.tokenizer_revision",
              "tokenizer.tokenizer_max_length",
              "tokens.limit_*",
              "tokens.val_check_interval"};
    case Framework::torchtitan:
      return {"job.*",
              "profiling.*",
              "metrics.*",
              "checkpoint.*",
              "compile.*",
              "comm.*",
              "fault_tolerance.*",
              "memory_estimation.*",
              "debug.*",
              "activation_checkpoint.*",
              "training.gc_*",
              "training.compile",
              "training.enable_cpu_offload",
              "training.dataloader.*",
              "parallelism.fsdp_reshard_after_forward",
              "parallelism.enable_async_tensor_parallel",
              "parallelism.*_loss_parallel",
              "parallelism.pipeline_parallel_*",
              "parallelism.enable_compiled_autograd",
              "parallelism.module_fqns_per_model_part",
              "parallelism.context_parallel_*",
              "optimizer.implementation",
              "optimizer.early_step_in_backward",
              "model.print_after_conversion",
              "validation.*"};
    case Framework::megatron:
      return {"--log-*",
              "--tensorboard-*",
              "--wandb-*",
              "--save*",
              "--ckpt-*",
              "--auto-detect-ckpt-format",
              "--exit-*",
              "--eval-*",
              "--no-load-*",
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
              "--make-vocab-size-divisible-by",
              "--tokenizer-type",
              "--vocab-file",
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
              "--use-rotary-position-embeddings",
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
              "zero_optimization.*",
              "zero_allow_untested_optimizer",
              "activation_checkpointing.*",
              "autotuning.*",
              "elasticity.*",
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
              "load_best_model_at_end",
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
              "restore_callback_states_from_checkpoint",
              "ignore_data_skip"};
    case Framework::hf_config: return {"*"};
  }
  return {};
}

bool is_off(const Value& value) {
  if (const auto* on = std::get_if<bool>(&value.data)) return !*on;
  if (const auto* list = std::get_if<Values>(&value.data)) return list->empty();
  if (const auto* word = std::get_if<std::string>(&value.data)) return word->empty();
  return std::holds_alternative<Nothing>(value.data);
}

}  // namespace

bool changes_nothing(Framework from, const Setting& setting) {
  return is_off(setting.value) || matches_any(name_patterns(harmless_keys(from)), setting.path);
}

}  // namespace trireme::config
