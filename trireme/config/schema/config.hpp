#pragma once
// The configuration as plain structs, with all defaults. fields.cpp documents each key. Where a comment says so, 0
// means "not given"; derive.cpp fills it in.
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/config/schema/steps.hpp"

namespace trireme {

struct RunConfig {
  std::string name = "run-%date-%jobid";
  std::string dir = "runs";
  std::int64_t seed = 42;
};

/// rope_scaling of a Hugging Face config.json. An empty type is plain RoPE (choices.hpp: RopeKind).
struct RopeScaling {
  std::string rope_type;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::int64_t original_max_position_embeddings = 0;  // 0: max_position_embeddings
  // YaRN's; 0 where transformers has null.
  double beta_fast = 32;
  double beta_slow = 1;
  double attention_factor = 0;
  double mscale = 0;
  double mscale_all_dim = 0;
  bool truncate = true;
};

/// Keys as in a Hugging Face config.json. A preset or `hf` sets the sizes; any key given in addition overrides it.
struct ModelConfig {
  std::string preset;
  std::string hf;
  std::string model_type = "llama";
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;  // 0: num_attention_heads
  std::int64_t head_dim = 0;             // 0: hidden_size / num_attention_heads
  std::int64_t intermediate_size = 0;    // 0: 4 hidden_size for gpt2; required for the others
  std::int64_t vocab_size = 0;           // 0: that of the tokenizer, rounded up to vocab_multiple
  std::int64_t vocab_multiple = 1;
  std::int64_t max_position_embeddings = 2048;
  std::string hidden_act = "silu";
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool qk_norm = false;
  std::int64_t sliding_window = 0;          // 0: none
  std::int64_t sliding_window_pattern = 0;  // every Nth layer has no window; 0: all layers have it
  double query_pre_attn_scalar = 0;         // scores are divided by its square root; 0: head_dim
  double attn_logit_softcapping = 0;        // 0: none, as below
  double final_logit_softcapping = 0;
  std::int64_t num_local_experts = 0;
  std::int64_t num_experts_per_tok = 2;
  std::int64_t moe_intermediate_size = 0;            // 0: intermediate_size
  std::int64_t shared_expert_intermediate_size = 0;  // 0: none
  std::string scoring_func = "softmax";
  bool norm_topk_prob = true;
  double routed_scaling_factor = 1;
  double expert_capacity_factor = 0;  // 0: no token is dropped
  double router_aux_loss_coef = 0;
  std::string router_aux_loss_type = "sample";
  std::int64_t router_aux_loss_samples = 0;  // of type "hf": that one product is over; 0: micro_batch_size x dp
  double router_z_loss_coef = 0;
  double router_bias_update_rate = 0;  // 0: experts are chosen by their scores alone
  double initializer_range = 0.02;
  std::string initializer = "auto";
  double embd_pdrop = 0;
  double resid_pdrop = 0;
  double attention_dropout = 0;
  std::string dtype = "auto";
  std::string init = "random";
};

struct TokenizerConfig {
  std::string path;
};

struct DataSource {
  std::string path;
  double weight = 1;
};

/// A training stage with its own data. At least one is needed.
struct DataStage {
  std::int64_t start_step = 1;
  std::int64_t seq_len = 0;  // 0: training.seq_len
  std::string attention = "auto";
  std::string positions = "auto";
  std::string packing = "auto";
  std::vector<DataSource> sources;
};

struct TrainingConfig {
  std::int64_t steps = 1000;
  std::int64_t seq_len = 1024;
  // Any two of these three; 0: derived. If none is given: one microbatch of one sequence.
  std::int64_t micro_batch_size = 0;
  std::int64_t grad_accum = 0;
  std::int64_t global_batch_size = 0;
  double max_norm = 1;         // 0: no clipping
  double label_smoothing = 0;  // not in validation losses, as below
  double z_loss_coef = 0;
};

/// Validation loss on held-out tokens: a fraction of every source, or separate files.
struct ValidationConfig {
  std::int64_t interval = 0;  // 0: never
  std::int64_t samples = 0;   // 0: all
  double fraction = 0;
  std::vector<std::string> sources;
};

struct OptimizerConfig {
  std::string name = "adamw";
  double lr = 3e-4;
  std::vector<double> betas = {0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  std::vector<std::string> no_decay = {"norm", "bias"};
  std::vector<std::string> frozen = {};
  std::vector<std::string> lr_factors = {};  // "PATTERN FACTOR": lr_factor.hpp
  double momentum = 0.9;
  bool nesterov = false;
  double skip_z = 0;
};

/// Phases are counted in steps that are done: a decay from 100 to 200 begins after step 100 (lr_schedule.hpp).
struct LrSchedulerConfig {
  Steps warmup_steps = 0;
  std::string warmup_shape = "linear";
  double start_lr = 0;
  std::int64_t start_delay = 0;
  std::string decay = "cosine";
  Steps decay_steps = 0;        // 0: from its start to its end
  Steps decay_start_step = -1;  // -1: after the warm-up, or decay_steps before the end
  Steps decay_end_step = 0;     // 0: training.steps
  double min_lr = 0;
};

struct ParallelismConfig {
  std::int64_t dp = -1;  // -1: all remaining ranks
  std::int64_t zero = 1;
  std::int64_t tp = 1;
  bool sequence_parallel = true;
  std::int64_t pp = 1;
  std::string pp_schedule = "1f1b";
  std::string pp_schedule_file;  // instead of pp_schedule
  std::int64_t virtual_stages = 1;
  std::vector<std::int64_t> stages;  // empty: balanced by cost
  std::int64_t cp = 1;
  std::string cp_method = "ring";
  std::int64_t ep = 1;
  std::int64_t expert_tp = 0;  // 0: tp
  std::string order = "tp-cp-dp-pp";
  std::int64_t replicate = 1;
  bool reshard_after_forward = true;
  bool overlap_comm = true;
  bool reduce_scatter = true;
  bool contiguous_gradients = true;
  double bucket_mb = 25;
  std::int64_t max_live_parameters = 1'000'000'000;
  std::int64_t max_reuse_distance = 1'000'000'000;
  std::int64_t persistence_threshold = 100'000;
  std::string zero_unit = "layer";
};

struct PrecisionConfig {
  std::string param = "auto";  // auto: model.dtype
  // float64 if the weights are float64 (derive.cpp).
  std::string reduce = "float32";
  std::string accumulate = "float32";
  std::string master = "float32";
  std::string states = "float32";
  std::string matmul = "auto";  // auto: the dtype of the weights
  std::string fp8_scaling = "tensor", fp8_amax = "step";
};

struct LossScaleConfig {
  double initial = 65536;
  std::int64_t growth_interval = 1000;
  std::int64_t hysteresis = 2;
};

struct ActivationCheckpointConfig {
  std::string mode = "none";
};

struct CheckpointConfig {
  std::int64_t interval = 200;
  std::int64_t keep = 2;
  std::int64_t keep_every = 0;  // 0: off
  std::string resume = "auto";
  bool async = true;
  double buffer_mb = 0;           // 0: by the memory of the host
  std::int64_t max_failures = 3;  // 0: any number
  double stall_warning_s = 60;
  double stall_timeout_s = 900;
  std::vector<std::string> accept_changes;
  bool export_hf = true;
  std::string format = "trireme";
};

struct MetricsConfig {
  std::int64_t interval = 10;
  std::string console = "auto";
  bool tensorboard = true;
  std::vector<std::string> hub_command;  // empty: off
  double peak_tflops = 0;                // 0: that of the GPU, if it is known
};

struct ProfilerConfig {
  std::vector<std::int64_t> steps;
  bool operations = false;
  std::string memory_snapshot = "on_oom";
  std::int64_t wait = 1;
  std::int64_t warmup = 1;
  std::int64_t active = 3;
  bool with_stack = false;
  std::string dir = "trace";
};

struct CommConfig {
  std::string backend = "auto";
  double init_timeout_s = 300;
  double timeout_s = 100;
  std::string check = "fast";
  bool deterministic = false;
  bool shared_memory = true;
  bool share_gpu = false;
};

struct CudaConfig {
  std::string graphs = "auto";
  bool fused_matmul = true;
  bool tune_matmul = true;
  bool deterministic = false;
};

struct ChecksConfig {
  std::int64_t replicas_every = 0;  // 0: off
  std::string non_finite = "stop";
};

struct Config {
  RunConfig run;
  ModelConfig model;
  TokenizerConfig tokenizer;
  std::vector<DataStage> data;
  TrainingConfig training;
  ValidationConfig validation;
  OptimizerConfig optimizer;
  LrSchedulerConfig lr_scheduler;
  ParallelismConfig parallelism;
  PrecisionConfig precision;
  LossScaleConfig loss_scale;
  ActivationCheckpointConfig activation_checkpoint;
  CheckpointConfig checkpoint;
  MetricsConfig metrics;
  ProfilerConfig profiler;
  CommConfig comm;
  CudaConfig cuda;
  ChecksConfig checks;
};

}  // namespace trireme
