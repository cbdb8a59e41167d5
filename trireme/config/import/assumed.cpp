#include "trireme/config/import/assumed.hpp"

#include <cstdint>
#include <map>
#include <utility>

namespace trireme::config {

const std::vector<std::pair<std::string, Value>>& assumed(Framework framework) {
  using Pairs = std::vector<std::pair<std::string, Value>>;
  using whole = std::int64_t;
  const Value adam = {Values{{0.9}, {0.999}}};
  static const std::map<Framework, Pairs> known = {
      // config.py: no clipping, weight decay on all parameters, tensor parallelism with all-reduce.
      {Framework::nanotron,
       {{"training.max_norm", {whole{0}}},
        {"optimizer.no_decay", {Values{}}},
        {"lr_scheduler.decay", {"linear"}},
        {"parallelism.sequence_parallel", {false}},
        {"model.initializer", {"scaled"}}}},  // scaling/parametrization.py
      // config/job_config.py
      {Framework::torchtitan,
       {{"training.steps", {whole{10'000}}},
        {"training.seq_len", {whole{2048}}},
        {"training.micro_batch_size", {whole{8}}},
        {"optimizer.lr", {8e-4}},
        {"optimizer.no_decay", {Values{}}},
        {"lr_scheduler.warmup_steps", {whole{200}}},
        {"lr_scheduler.decay", {"linear"}},
        {"parallelism.zero", {whole{3}}},
        {"model.dtype", {"bfloat16"}},
        {"model.initializer", {"torchtitan"}},  // models/llama3/model/model.py
        {"activation_checkpoint.mode", {"selective"}}}},
      // training/arguments.py
      {Framework::megatron,
       {{"optimizer.betas", adam},
        {"optimizer.weight_decay", {0.01}},
        {"lr_scheduler.decay", {"linear"}},
        {"parallelism.zero", {whole{0}}},
        {"parallelism.sequence_parallel", {false}},
        {"model.dtype", {"float32"}},
        {"model.tie_word_embeddings", {true}},
        {"model.initializer", {"scaled"}},  // scaled_init_method_normal
        {"model.attention_dropout", {0.1}},
        {"model.resid_pdrop", {0.1}},
        {"model.embd_pdrop", {0.1}}}},
      // runtime/config.py, ops/adam
      {Framework::deepspeed,
       {{"training.max_norm", {whole{0}}},
        {"optimizer.betas", adam},
        {"optimizer.weight_decay", {whole{0}}},
        {"optimizer.no_decay", {Values{}}},  // one group: every parameter decays
        {"lr_scheduler.decay", {"constant"}},
        {"parallelism.zero", {whole{0}}},
        {"model.dtype", {"float32"}}}},
      // training_args.py
      {Framework::hf_trainer,
       {{"training.micro_batch_size", {whole{8}}},
        {"optimizer.lr", {5e-5}},
        {"optimizer.betas", adam},
        {"optimizer.weight_decay", {whole{0}}},
        {"lr_scheduler.decay", {"linear"}},
        {"parallelism.zero", {whole{0}}},
        {"model.dtype", {"float32"}}}},
      {Framework::hf_config, {}},
  };
  return known.at(framework);
}

}  // namespace trireme::config
