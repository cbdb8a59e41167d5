#include "trireme/config/translate/aliases.hpp"

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

using ::testing::SizeIs;

struct Renamed {
  std::string ours;         // our key that it sets
  std::string expected;     // in TOML syntax
  std::string foreign;      // another trainer's key with a value, or its flags
  std::string before = "";  // TOML that must precede it
};

/// All aliases: nanotron, torchtitan (and its newer names), Megatron, DeepSpeed, the HF Trainer.
const std::vector<Renamed>& renamed_keys() {
  static const std::vector<Renamed> rows = {
      {"run.name", R"("x")", "general.run = 'x'"},
      {"run.name", R"("x")", "job.description = 'x'"},
      {"run.name", R"("x")", "--wandb-exp-name x"},
      {"run.name", R"("x")", "run_name = 'x'"},
      {"run.seed", "5", "general.seed = 5"},
      {"run.seed", "5", "debug.seed = 5"},
      {"run.seed", "5", "--seed 5"},
      {"run.seed", "5", "seed = 5"},
      {"run.dir", R"("x")", "checkpoints.checkpoints_path = 'x'"},
      {"run.dir", R"("x")", "job.dump_folder = 'x'"},
      {"run.dir", R"("x")", "--save x"},
      {"run.dir", R"("x")", "--tensorboard-dir x"},
      {"run.dir", R"("y")", "--tensorboard-dir x --save y"},
      {"metrics.tensorboard", "true", "--tensorboard-dir x --save y", "metrics.tensorboard = false"},
      {"run.dir", R"("x")", "output_dir = 'x'"},

      {"model.hidden_size", "64", "model.model_config.hidden_size = 64"},
      {"model.num_hidden_layers", "3", "model.model_config.num_hidden_layers = 3"},
      {"model.num_key_value_heads", "2", "model.model_config.num_key_value_heads = 2"},
      {"model.norm_eps", "1e-06", "model.model_config.rms_norm_eps = 1e-6"},
      {"model.rope_theta", "500.0", "model.model_config.rope_theta = 500.0"},
      {"model.initializer_range", "0.025", "model.init_method.std = 0.025"},
      {"model.initializer", R"("depth-scaled")", "model.init_method.scaling_method = 'layer_index'"},
      {"model.hidden_size", "4096", "model = { name = 'llama3', flavor = '8B' }"},
      {"model.hidden_size", "64", "--hidden-size 64"},
      {"model.num_hidden_layers", "3", "--num-layers 3"},
      {"model.num_key_value_heads", "2", "--num-query-groups 2"},
      {"model.num_attention_heads", "4", "--num-attention-heads 4"},
      {"model.intermediate_size", "96", "--ffn-hidden-size 96"},
      {"model.head_dim", "16", "--kv-channels 16"},
      {"model.vocab_size", "100", "--vocab-size 100"},
      {"model.vocab_multiple", "256", "--make-vocab-size-divisible-by 128", "parallelism.tp = 2"},
      {"model.vocab_multiple", "2", "model.make_vocab_size_divisible_by = 1", "parallelism.tp = 2"},
      {"model.max_position_embeddings", "64", "--max-position-embeddings 64"},
      {"model.norm_eps", "1e-06", "--norm-epsilon 1e-6"},
      {"model.rope_theta", "500.0", "--rotary-base 500"},
      {"model.initializer_range", "0.01", "--init-method-std 0.01"},
      {"model.attention_dropout", "0.2", "--attention-dropout 0.2"},
      {"model.resid_pdrop", "0.2", "--hidden-dropout 0.2"},
      {"model.embd_pdrop", "0.2", "--hidden-dropout 0.2"},
      {"model.num_local_experts", "4", "--num-experts 4"},
      {"model.num_experts_per_tok", "1", "--moe-router-topk 1"},
      {"model.router_aux_loss_coef", "0.01", "--moe-aux-loss-coeff 0.01"},
      {"model.tie_word_embeddings", "false", "--untie-embeddings-and-output-weights",
       "model.tie_word_embeddings = true"},
      {"model.hidden_size", "64", "model.n_embd = 64"},
      {"model.num_hidden_layers", "3", "model.n_layer = 3"},
      {"model.num_attention_heads", "4", "model.n_head = 4"},

      {"model.dtype", R"("bfloat16")", "model.dtype = 'bfloat16'"},
      {"model.dtype", R"("float16")", "training.mixed_precision_param = 'float16'"},
      {"precision.reduce", R"("bfloat16")", "training.mixed_precision_reduce = 'bfloat16'"},
      {"model.dtype", R"("bfloat16")", "--bf16"},
      {"model.dtype", R"("float16")", "--fp16"},
      {"model.dtype", R"("bfloat16")", "bf16.enabled = true"},
      {"model.dtype", R"("float16")", "fp16.enabled = true\nbf16.enabled = false"},
      {"model.dtype", R"("bfloat16")", "bf16 = true"},
      {"model.dtype", R"("float32")", "model.torch_dtype = 'torch.float32'"},
      {"loss_scale.initial", "4096.0", "fp16.initial_scale_power = 12"},
      {"loss_scale.growth_interval", "500", "fp16.loss_scale_window = 500"},
      {"loss_scale.hysteresis", "4", "fp16.hysteresis = 4"},

      {"tokenizer.path", R"("x")", "tokenizer.tokenizer_name_or_path = 'x'"},
      {"tokenizer.path", R"("x")", "model.hf_assets_path = 'x'"},
      {"tokenizer.path", R"("x")", "--tokenizer-model x"},
      {"tokenizer.path", R"("x/vocab.json")", "--vocab-file x/vocab.json"},

      {"data.0.sources.1.path", R"("b")", "data_stages.0.data.dataset.dataset_folder = ['a', 'b']"},
      {"data.0.sources.0.path", R"("a")", "data_stages.0.data.dataset.dataset_folder = 'a'"},
      {"data.0.sources.1.weight", "0.3",
       "data_stages.0.data.dataset = { dataset_folder = ['a', 'b'], dataset_weights = [0.7, 0.3] }"},
      {"data.0.positions", R"("document")", "data_stages.0.data.dataset.return_positions = true"},
      {"data.0.positions", R"("auto")", "data_stages.0.dataset.return_positions = false", "data.start_step = 1"},
      {"data.0.positions", R"("document")", "data_stages.0.dataset.return_positions = true"},
      {"data.1.attention", R"("document")", "model.model_config._use_doc_masking = true",
       "data = [ { start_step = 1 }, { start_step = 2 } ]"},
      {"data.0.positions", R"("document")", "--reset-position-ids"},
      {"data.0.attention", R"("document")", "--reset-attention-mask"},
      {"data.0.start_step", "1", "data_stages.0.start_training_step = 1"},
      {"data.0.seq_len", "64", "data_stages.0.sequence_length = 64"},
      {"data.0.sources.0.path", R"("c4")", "training.dataset = 'c4'"},
      {"data.0.sources.0.path", R"("x")", "training.dataset = 'c4'\ntraining.dataset_path = 'x'"},
      {"data.0.sources.1.path", R"("b")", "--data-path 0.7 a 0.3 b"},
      {"data.0.sources.1.weight", "0.3", "--data-path 0.7 a 0.3 b"},
      {"data.0.sources.0.path", R"("a")", "--data-path a"},

      {"training.steps", "7", "tokens.train_steps = 7"},
      {"training.steps", "7", "training.steps = 7"},
      {"training.steps", "7", "--train-iters 7"},
      {"training.steps", "7", "max_steps = 7"},
      {"training.steps", "7", "scheduler.params.total_num_steps = 7"},
      {"training.seq_len", "64", "tokens.sequence_length = 64"},
      {"training.seq_len", "64", "training.seq_len = 64"},
      {"training.seq_len", "64", "training.max_context_length = 64"},
      {"training.seq_len", "64", "--seq-length 64"},
      {"training.micro_batch_size", "3", "tokens.micro_batch_size = 3"},
      {"training.micro_batch_size", "3", "training.local_batch_size = 3"},
      {"training.micro_batch_size", "3", "training.num_tokens_per_microbatch_per_dp_rank = 192",
       "training.seq_len = 64"},
      {"training.micro_batch_size", "3", "--micro-batch-size 3"},
      {"training.micro_batch_size", "3", "train_micro_batch_size_per_gpu = 3"},
      {"training.micro_batch_size", "3", "per_device_train_batch_size = 3"},
      {"training.grad_accum", "3", "tokens.batch_accumulation_per_replica = 3"},
      {"training.grad_accum", "3", "gradient_accumulation_steps = 3"},
      {"training.global_batch_size", "12", "training.global_batch_size = 12"},
      {"training.global_batch_size", "12", "training.num_tokens_per_train_step = 768", "training.seq_len = 64"},
      {"training.global_batch_size", "12", "--global-batch-size 12"},
      {"training.global_batch_size", "12", "train_batch_size = 12"},
      {"training.max_norm", "0.5", "optimizer.clip_grad = 0.5"},
      {"training.max_norm", "0.5", "training.max_norm = 0.5"},
      {"training.max_norm", "0.5", "--clip-grad 0.5"},
      {"training.max_norm", "0.5", "gradient_clipping = 0.5"},
      {"training.max_norm", "0.5", "max_grad_norm = 0.5"},
      {"training.label_smoothing", "0.25", "label_smoothing_factor = 0.25"},
      {"training.z_loss_coef", "0.001",
       "model.model_config.z_loss_coefficient = 1e-3\nmodel.model_config.z_loss_enabled = true"},
      {"training.z_loss_coef", "0.0",
       "model.model_config.z_loss_coefficient = 1e-3\nmodel.model_config.z_loss_enabled = false"},

      {"optimizer.name", R"("adamw")", "optimizer.optimizer_factory.name = 'adamW'"},
      {"optimizer.betas", "[0.8, 0.95]", "optimizer.optimizer_factory.adam_beta1 = 0.8"},
      {"optimizer.betas", "[0.9, 0.99]", "optimizer.optimizer_factory.adam_beta2 = 0.99"},
      {"optimizer.eps", "1e-06", "optimizer.optimizer_factory.adam_eps = 1e-6"},
      {"optimizer.weight_decay", "0.2", "optimizer.weight_decay = 0.2"},
      {"optimizer.no_decay", R"(["embedding.weight", "re:x"])",
       "optimizer.weight_decay_exclude_named_params = ['.*token_embedding.*', 'x']"},
      {"optimizer.lr", "0.5", "optimizer.learning_rate_scheduler.learning_rate = 0.5"},
      {"optimizer.name", R"("adamw")", "optimizer.name = 'AdamW'"},
      {"optimizer.betas", "[0.8, 0.99]", "optimizer.beta1 = 0.8\noptimizer.beta2 = 0.99"},
      {"optimizer.name", R"("adamw")", "--optimizer adam", "optimizer.name = 'sgd'"},
      {"optimizer.lr", "0.5", "--lr 0.5"},
      {"optimizer.betas", "[0.8, 0.99]", "--adam-beta1 0.8 --adam-beta2 0.99"},
      {"optimizer.eps", "1e-06", "--adam-eps 1e-6"},
      {"optimizer.weight_decay", "0.2", "--weight-decay 0.2"},
      {"optimizer.name", R"("adamw")", "optimizer.type = 'Adam'"},
      {"optimizer.lr", "0.5", "optimizer.params.lr = 0.5"},
      {"optimizer.betas", "[0.8, 0.99]", "optimizer.params.betas = [0.8, 0.99]"},
      {"optimizer.eps", "1e-06", "optimizer.params.eps = 1e-6"},
      {"optimizer.weight_decay", "0.2", "optimizer.params.weight_decay = 0.2"},
      {"optimizer.lr", "0.5", "learning_rate = 0.5"},
      {"optimizer.name", R"("adamw")", "optim = 'adamw_torch_fused'"},
      {"optimizer.betas", "[0.8, 0.99]", "adam_beta1 = 0.8\nadam_beta2 = 0.99"},
      {"optimizer.eps", "1e-06", "adam_epsilon = 1e-6"},
      {"optimizer.weight_decay", "0.2", "weight_decay = 0.2"},

      {"lr_scheduler.warmup_steps", "9", "optimizer.learning_rate_scheduler.lr_warmup_steps = 9"},
      {"lr_scheduler.decay", R"("1-sqrt")", "optimizer.learning_rate_scheduler.lr_decay_style = '1-sqrt'"},
      {"lr_scheduler.decay_steps", "9", "optimizer.learning_rate_scheduler.lr_decay_steps = 9"},
      {"lr_scheduler.decay_start_step", "5",
       "optimizer.learning_rate_scheduler = { lr_decay_steps = 9, lr_warmup_steps = 5 }"},
      {"lr_scheduler.decay_start_step", "7", "optimizer.learning_rate_scheduler.lr_decay_starting_step = 7"},
      {"lr_scheduler.decay_start_step", "5",
       "optimizer.learning_rate_scheduler = { lr_warmup_style = 'constant', lr_warmup_steps = 5 }"},
      {"lr_scheduler.warmup_steps", "0",
       "optimizer.learning_rate_scheduler = { lr_warmup_style = 'constant', lr_warmup_steps = 5 }"},
      {"lr_scheduler.min_lr", "0.001", "optimizer.learning_rate_scheduler.min_decay_lr = 0.001"},
      {"lr_scheduler.warmup_steps", "9", "lr_scheduler.lr_warmup_steps = 9"},
      {"lr_scheduler.warmup_steps", "9", "lr_scheduler.warmup_steps = 9"},
      {"lr_scheduler.decay_steps", "80", "lr_scheduler.decay_ratio = 0.8", "training.steps = 100"},
      {"lr_scheduler.decay", R"("1-sqrt")", "lr_scheduler.decay_type = 'sqrt'"},
      {"lr_scheduler.min_lr", "0.05", "lr_scheduler.min_lr_factor = 0.1", "optimizer.lr = 0.5"},
      {"lr_scheduler.min_lr", "0.05", "lr_scheduler.lr_min = 0.1", "optimizer.lr = 0.5"},
      {"lr_scheduler.decay_start_step", "100", "lr_scheduler.decay_ratio = 0", "training.steps = 100"},
      {"tokenizer.path", R"("x")", "model.tokenizer_path = 'x'"},
      {"lr_scheduler.warmup_steps", "9", "--lr-warmup-iters 9"},
      {"lr_scheduler.decay", R"("linear")", "--lr-decay-style linear"},
      {"lr_scheduler.decay_end_step", "9", "--lr-decay-iters 9"},
      {"lr_scheduler.decay_end_step", "2.5", "--lr-decay-samples 20", "training.global_batch_size = 8"},
      {"lr_scheduler.warmup_steps", "2.5", "--lr-warmup-samples 20", "training.global_batch_size = 8"},
      {"lr_scheduler.decay_steps", "3", "--lr-wsd-decay-iters 3 --lr-decay-style WSD"},
      {"lr_scheduler.decay_steps", "0", "--lr-wsd-decay-iters 3 --lr-decay-style cosine"},
      {"lr_scheduler.decay_steps", "2.5", "--lr-wsd-decay-samples 20 --lr-decay-style WSD",
       "training.global_batch_size = 8"},
      {"lr_scheduler.decay", R"("exponential")", "--lr-decay-style WSD"},
      {"lr_scheduler.decay", R"("1-sqrt")", "--lr-wsd-decay-style minus_sqrt --lr-decay-style WSD"},
      {"lr_scheduler.decay", R"("linear")", "--lr-wsd-decay-style minus_sqrt --lr-decay-style linear"},
      {"training.steps", "2", "--train-samples 20", "training.global_batch_size = 8"},
      {"lr_scheduler.decay_end_step", "2.5", "--train-samples 20", "training.global_batch_size = 8"},
      {"lr_scheduler.warmup_steps", "1.5", "--lr-warmup-fraction 0.1 --lr-decay-iters 15"},
      {"lr_scheduler.start_lr", "1e-05", "--lr-warmup-init 1e-5"},
      {"lr_scheduler.min_lr", "0.001", "--min-lr 0.001"},
      {"lr_scheduler.decay", R"("constant")", "scheduler.type = 'WarmupLR'"},
      {"lr_scheduler.decay", R"("linear")", "scheduler.type = 'WarmupDecayLR'"},
      {"lr_scheduler.warmup_steps", "9", "scheduler.params.warmup_num_steps = 9"},
      {"lr_scheduler.start_lr", "0.001", "scheduler.params.warmup_min_lr = 0.001", "optimizer.lr = 0.5"},
      {"optimizer.lr", "0.25", "scheduler.params.warmup_max_lr = 0.25", "optimizer.params.lr = 0.5"},
      {"lr_scheduler.warmup_shape", R"("log")", "scheduler.params.warmup_type = 'log'"},
      {"lr_scheduler.start_lr", "0.05", "scheduler.params.warmup_min_ratio = 0.1", "optimizer.lr = 0.5"},
      {"lr_scheduler.min_lr", "0.05", "scheduler.params.cos_min_ratio = 0.1", "optimizer.lr = 0.5"},
      {"lr_scheduler.warmup_steps", "9", "warmup_steps = 9"},
      {"lr_scheduler.warmup_steps", "3", "warmup_ratio = 0.03", "training.steps = 100"},
      {"lr_scheduler.warmup_steps", "3", "warmup_steps = 0.03", "training.steps = 100"},
      {"lr_scheduler.warmup_steps", "9", "warmup_ratio = 0.03\nwarmup_steps = 9", "training.steps = 100"},
      {"lr_scheduler.decay", R"("constant")", "lr_scheduler_type = 'constant_with_warmup'"},
      {"lr_scheduler.warmup_steps", "0", "lr_scheduler_type = 'constant'\nwarmup_steps = 9"},
      {"lr_scheduler.decay_steps", "10000", "lr_scheduler_type = 'inverse_sqrt'"},
      {"lr_scheduler.decay_steps", "50", "lr_scheduler_type = 'inverse_sqrt'\nlr_scheduler_kwargs.timescale = 50"},
      {"lr_scheduler.min_lr", "0.001", "lr_scheduler_kwargs.min_lr = 0.001"},
      {"lr_scheduler.min_lr", "0.05", "lr_scheduler_kwargs.min_lr_rate = 0.1", "optimizer.lr = 0.5"},
      {"lr_scheduler.start_lr", "0.05", "lr_scheduler_kwargs.min_lr_ratio = 0.1", "optimizer.lr = 0.5"},
      {"lr_scheduler.min_lr", "0.001", "lr_scheduler_kwargs.lr_end = 0.001"},
      {"lr_scheduler.decay", R"("linear")", "lr_scheduler_kwargs.power = 1\nlr_scheduler_type = 'polynomial'"},
      {"lr_scheduler.decay_steps", "20", "lr_scheduler_kwargs.num_decay_steps = 20"},
      {"lr_scheduler.decay", R"("1-sqrt")",
       "lr_scheduler_kwargs.decay_type = '1-sqrt'\nlr_scheduler_type = 'warmup_stable_decay'"},

      {"parallelism.dp", "8", "parallelism.dp = 8"},
      {"parallelism.dp", "8", "parallelism = { data_parallel_replicate_degree = 2, data_parallel_shard_degree = 4 }"},
      {"parallelism.replicate", "2",
       "parallelism = { data_parallel_replicate_degree = 2, data_parallel_shard_degree = 4 }"},
      {"parallelism.dp", "-1", "parallelism.data_parallel_shard_degree = -1"},
      {"parallelism.zero", "0", "optimizer.zero_stage = 0"},
      {"parallelism.zero", "3", "parallelism.data_parallel_shard_degree = 4"},
      {"parallelism.zero", "3", "parallelism.data_parallel_shard_degree = -1"},
      {"parallelism.zero", "0", "parallelism.data_parallel_shard_degree = 1"},
      {"parallelism.zero", "1", "--use-distributed-optimizer", "parallelism.zero = 0"},
      {"parallelism.zero", "3", "--use-megatron-fsdp"},
      {"parallelism.zero", "2", "zero_optimization.stage = 2"},
      {"parallelism.zero", "3", "fsdp = 'full_shard auto_wrap'"},
      {"parallelism.zero", "2", "fsdp = 'shard_grad_op'"},
      {"parallelism.zero", "0", "fsdp = ''"},
      {"parallelism.tp", "4", "parallelism.tp = 4"},
      {"parallelism.tp", "4", "parallelism.tensor_parallel_degree = 4"},
      {"parallelism.tp", "4", "--tensor-model-parallel-size 4"},
      {"parallelism.tp", "4", "tensor_parallel.autotp_size = 4"},
      {"parallelism.sequence_parallel", "false", "parallelism.tp_mode = 'ALL_REDUCE'"},
      {"parallelism.sequence_parallel", "true", "parallelism.tp_mode = 'REDUCE_SCATTER'"},
      {"parallelism.sequence_parallel", "false", "parallelism.enable_sequence_parallel = false"},
      {"parallelism.sequence_parallel", "false", "parallelism.disable_sequence_parallel = true"},
      {"parallelism.sequence_parallel", "true", "--sequence-parallel", "parallelism.sequence_parallel = false"},
      {"parallelism.pp", "2", "parallelism.pp = 2"},
      {"parallelism.pp", "2", "parallelism.pipeline_parallel_degree = 2"},
      {"parallelism.pp", "2", "--pipeline-model-parallel-size 2"},
      {"parallelism.pp_schedule", R"("afab")", "parallelism.pp_engine = 'afab'"},
      {"parallelism.pp_schedule", R"("1f1b")", "parallelism.pp_engine = '1f1b'"},
      {"parallelism.pp_schedule", R"("1f1b")", "parallelism.pipeline_parallel_schedule = '1F1B'"},
      {"parallelism.pp_schedule", R"("interleaved-1f1b")",
       "parallelism.pipeline_parallel_schedule = 'Interleaved1F1B'"},
      {"parallelism.pp_schedule", R"("zbv")", "parallelism.pipeline_parallel_schedule = 'ZBVZeroBubble'"},
      {"parallelism.pp_schedule", R"("afab")", "parallelism.pipeline_parallel_schedule = 'GPipe'"},
      {"parallelism.virtual_stages", "2", "--num-virtual-stages-per-pipeline-rank 2"},
      {"parallelism.pp_schedule", R"("interleaved-1f1b")", "--num-virtual-stages-per-pipeline-rank 2"},
      {"parallelism.virtual_stages", "3", "--num-layers-per-virtual-pipeline-stage 2",
       "model.num_hidden_layers = 12\nparallelism.pp = 2"},
      {"parallelism.cp", "2", "parallelism.context_parallel_size = 2"},
      {"parallelism.cp", "2", "parallelism.context_parallel_degree = 2"},
      {"parallelism.cp", "2", "--context-parallel-size 2"},
      {"parallelism.ep", "2", "parallelism.expert_parallel_size = 2"},
      {"parallelism.ep", "2", "parallelism.expert_parallel_degree = 2"},
      {"parallelism.ep", "2", "--expert-model-parallel-size 2"},
      {"parallelism.ep", "2", "moe.ep_size = 2"},
      {"parallelism.expert_tp", "1", "--expert-tensor-parallel-size 1"},
      {"parallelism.bucket_mb", "50.0", "model.ddp_bucket_cap_mb = 50"},
      {"parallelism.overlap_comm", "true", "--overlap-grad-reduce", "parallelism.overlap_comm = false"},
      {"parallelism.overlap_comm", "false", "zero_optimization.overlap_comm = false"},
      {"parallelism.reduce_scatter", "false", "zero_optimization.reduce_scatter = false"},
      {"parallelism.contiguous_gradients", "false", "zero_optimization.contiguous_gradients = false"},
      {"parallelism.bucket_mb", "2000.0", "zero_optimization.reduce_bucket_size = 5e8"},
      {"parallelism.bucket_mb", "10.0", "zero_optimization.reduce_bucket_size = 5_000_000",
       "precision.accumulate = 'bfloat16'"},
      {"parallelism.max_live_parameters", "5", "zero_optimization.stage3_max_live_parameters = 5"},
      {"parallelism.max_reuse_distance", "5", "zero_optimization.stage3_max_reuse_distance = 5"},
      {"parallelism.persistence_threshold", "5", "zero_optimization.stage3_param_persistence_threshold = 5"},
      {"precision.accumulate", R"("float32")", "--optimizer.accumulate_grad_in_fp32",
       "precision.accumulate = 'bfloat16'"},

      {"activation_checkpoint.mode", R"("full")", "parallelism.recompute_layer = true"},
      {"activation_checkpoint.mode", R"("none")", "parallelism.recompute_layer = false"},
      {"activation_checkpoint.mode", R"("selective")", "activation_checkpoint.mode = 'selective'"},
      {"activation_checkpoint.mode", R"("selective")", "--recompute-granularity selective"},
      {"activation_checkpoint.mode", R"("selective")", "--recompute-activations"},
      {"activation_checkpoint.mode", R"("full")", "activation_checkpointing.partition_activations = true"},
      {"activation_checkpoint.mode", R"("full")", "gradient_checkpointing = true"},

      {"checkpoint.interval", "9", "checkpoints.checkpoint_interval = 9"},
      {"checkpoint.interval", "9", "checkpoint.interval = 9"},
      {"checkpoint.interval", "9", "--save-interval 9"},
      {"checkpoint.interval", "9", "save_steps = 9"},
      {"checkpoint.resume", R"("x")", "checkpoints.resume_checkpoint_path = 'x'"},
      {"checkpoint.resume", R"("auto")", "checkpoint.load_step = -1", "checkpoint.keep = 1"},
      {"checkpoint.resume", R"("x")", "--load x"},
      {"checkpoint.resume", R"("x")", "resume_from_checkpoint = 'x'"},
      {"checkpoint.resume", R"("never")", "resume_from_checkpoint = false"},
      {"checkpoint.keep", "3", "checkpoint.keep_latest_k = 3"},
      {"checkpoint.keep", "3", "save_total_limit = 3"},
      {"checkpoint.async", "true", "--async-save", "checkpoint.async = false"},
      {"checkpoint.export_hf", "true", "checkpoint.last_save_in_hf = true"},

      {"metrics.interval", "9", "logging.iteration_step_info_interval = 9"},
      {"metrics.interval", "9", "metrics.log_freq = 9"},
      {"metrics.interval", "9", "--log-interval 9"},
      {"metrics.interval", "9", "steps_per_print = 9"},
      {"metrics.interval", "9", "logging_steps = 9"},
      {"metrics.tensorboard", "false", "metrics.enable_tensorboard = false"},

      {"profiler.wait", "2", "profiler.wait = 2"},
      {"profiler.active", "2", "profiler.active = 2"},
      {"profiler.dir", R"("x")", "profiler.profiler_export_path = 'x'"},
      {"profiler.dir", R"("x")", "profiling.save_traces_folder = 'x'"},
      {"profiler.dir", R"("x")", "profiler.save_traces_folder = 'x'"},
      {"profiler.warmup", "2", "profiling.profiler_warmup = 2"},
      {"profiler.active", "2", "profiling.profiler_active = 2"},
      {"profiler.memory_snapshot", R"("steps")", "profiling.enable_memory_snapshot = true"},
      {"profiler.steps", "[10, 11]", "--profile"},
      {"profiler.steps", "[5, 6, 7]", "--profile --profile-step-start 5 --profile-step-end 8"},
      {"profiler.steps", "[]", "--profile-step-start 5"},
      {"profiler.steps", "[4]", "flops_profiler = { enabled = true, profile_step = 4 }"},
      {"profiler.steps", "[]", "flops_profiler = { enabled = false, profile_step = 4 }"},

      {"comm.timeout_s", "60.0", "comm.train_timeout_seconds = 60"},
      {"comm.init_timeout_s", "60.0", "comm.init_timeout_seconds = 60"},
      {"comm.timeout_s", "120.0", "--distributed-timeout-minutes 2"},
      {"comm.timeout_s", "60.0", "ddp_timeout = 60"},
      {"comm.backend", R"("nccl")", "--distributed-backend NCCL"},
  };
  return rows;
}

Flags words_in(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

TEST(Aliases, EveryRowOfTheTableParses) {
  for (const Renamed& row : renamed_keys()) {
    const bool is_flag = row.foreign.starts_with("--");
    LoadedConfig loaded =
        is_flag ? load(row.before + "\n", words_in(row.foreign)) : load(row.before + "\n" + row.foreign + "\n");
    EXPECT_THAT(loaded.violations, SizeIs(0)) << row.foreign;
    EXPECT_EQ(value_of(loaded.config, row.ours), row.expected) << row.ours << " from " << row.foreign;
  }
}

/// Every alias is in the table above, except the model's keys, which are identical.
TEST(Aliases, AllAreInTheTable) {
  std::string all;
  for (const Renamed& row : renamed_keys()) all += " " + row.foreign + "\n";
  for (const Alias& alias : aliases()) {
    if (alias.foreign.starts_with("model.model_config.") || alias.framework == Framework::hf_config) continue;
    std::string foreign = alias.foreign;
    if (const std::size_t star = foreign.find('*'); star != std::string::npos) foreign.replace(star, 1, "0");
    const std::size_t dot = foreign.rfind('.');
    const bool found =
        all.find(foreign + " ") != std::string::npos || all.find(foreign + "\n") != std::string::npos ||
        // section = { leaf = ... }
        (dot != std::string::npos && all.find(" " + foreign.substr(dot + 1) + " = ") != std::string::npos &&
         all.find(foreign.substr(0, dot) + " = {") != std::string::npos);
    EXPECT_TRUE(found) << foreign;
  }
}

TEST(Aliases, LeadToKeysThatExist) {
  Config config;
  std::set<std::string> keys = {"data.*.start_step", "data.*.seq_len", "data.*.attention",
                                "data.*.positions",  "data.*.sources", "data.0.attention",
                                "data.0.positions",  "data.0.sources", "data.0.sources.0.path"};
  for (const Field& field : fields(config)) keys.insert(field.key);
  std::set<std::tuple<Framework, std::string, std::string>> seen;
  for (const Alias& alias : aliases()) {
    EXPECT_TRUE(keys.contains(alias.key)) << alias.foreign << " -> " << alias.key;
    EXPECT_NE(alias.foreign, alias.key);
    EXPECT_TRUE(seen.insert({alias.framework, alias.foreign, alias.key}).second) << alias.foreign << " is there twice";
    EXPECT_FALSE(keys.contains(alias.foreign)) << alias.foreign << " is a key of ours";
  }
}

/// A foreign key with the same meaning accepts every value that ours accepts.
TEST(Aliases, OfTheSameMeaningTakeTheSameValues) {
  Config config;
  int count = 0;
  for (const Field& field : fields(config)) {
    for (const Alias& alias : aliases()) {
      if (alias.key != field.key || alias.translate != translations::same || alias.foreign.starts_with("--")) continue;
      const std::string value = toml_text(field.value);
      const LoadedConfig ours = load(field.key + " = " + value), theirs = load(alias.foreign + " = " + value);
      EXPECT_THAT(theirs.violations, SizeIs(0)) << alias.foreign;
      EXPECT_EQ(values_of(ours.config), values_of(theirs.config)) << alias.foreign;
      EXPECT_TRUE(theirs.is_given(field.key)) << alias.foreign;
      ++count;
    }
  }
  EXPECT_GT(count, 60);
}

TEST(FindAliases, WholePathsAndTellingWordsInOurSections) {
  const auto keys = [](const std::string& path) {
    std::string out;
    for (const AliasMatch& match : find_aliases(path)) out += match.key + " ";
    return out;
  };
  EXPECT_EQ(keys("tokens.train_steps"), "training.steps ");
  EXPECT_EQ(keys("training.train_steps"), "training.steps ");
  EXPECT_EQ(keys("data_stages.3.data.dataset.dataset_folder"), "data.3.sources ");
  EXPECT_EQ(keys("data_stages.x.data.dataset.dataset_folder"), "");
  EXPECT_EQ(keys("data_stages..data.dataset.dataset_folder"), "");
  EXPECT_EQ(keys("data.dataset_folder"), "");
  EXPECT_EQ(keys("parallelism.data_parallel_shard_degree"), "parallelism.dp parallelism.zero ");
  EXPECT_EQ(keys("--train-iters"), "training.steps ");
  EXPECT_EQ(keys("parallelism.stage"), "");
  EXPECT_EQ(keys("model.enabled"), "");
  EXPECT_EQ(keys("optimizer.train_steps"), "");
  EXPECT_EQ(keys("training.steps"), "");
}

TEST(ForeignName, IsWhatAPersonWouldWriteThere) {
  EXPECT_EQ(foreign_name("training.steps", Framework::nanotron), "tokens.train_steps");
  EXPECT_EQ(foreign_name("training.steps", Framework::megatron), "--train-iters");
  EXPECT_EQ(foreign_name("training.steps", Framework::torchtitan), "");
  EXPECT_EQ(other_names("lr_scheduler.warmup_steps"),
            "(nanotron: lr_warmup_steps, Megatron: --lr-warmup-iters both work)");
  EXPECT_EQ(other_names("optimizer.weight_decay"), "(Megatron: --weight-decay works too)");
  EXPECT_EQ(other_names("checks.non_finite"), "");
  EXPECT_STREQ(name(Framework::deepspeed), "DeepSpeed");
  EXPECT_STREQ(name(Framework::hf_trainer), "HF Trainer");
}

}  // namespace
}  // namespace trireme::config
