#pragma once
// Translations of other trainers' values to ours: the functions used in the table of aliases.cpp.
#include <string>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/config.hpp"
#include "trireme/config/schema/setting.hpp"

namespace trireme::config {

/// A value that is valid there and that we do not have. An import goes on without it.
struct NoCounterpart : ConfigError {
  using ConfigError::ConfigError;
};

/// Our settings for a foreign one; `key` is ours, with its index filled in. NoCounterpart for a value that we do not
/// have, ConfigError for one that is wrong; an empty result means that the foreign value is our default. `so_far`: the
/// config from the other settings.
using Translation = Settings (*)(const Setting& foreign, const std::string& key, const Config& so_far);

/// The number of values of a foreign flag: one; none, unless "true" or "false" follows; or all up to the next flag.
enum class FlagWords { one, none, many };
FlagWords words_of(Translation translation);

/// Whether it sets only a part of a value, and another setting may set the rest: the two betas.
bool refines(Translation translation);

/// Named in the table of aliases.cpp; those that read `so_far` have it as a named parameter.
namespace translations {

// Unchanged values.
Settings same(const Setting& s, const std::string& key, const Config&);
Settings as_lower(const Setting& s, const std::string& key, const Config&);
Settings as_truth(const Setting& s, const std::string& key, const Config&);
Settings not_of(const Setting& s, const std::string& key, const Config&);
Settings minutes(const Setting& s, const std::string& key, const Config&);
Settings power_of_two(const Setting& s, const std::string& key, const Config&);

// Switches: a fixed value when true, nothing when false.
Settings bfloat16_if_true(const Setting& s, const std::string& key, const Config&);
Settings float16_if_true(const Setting& s, const std::string& key, const Config&);
Settings float32_if_true(const Setting& s, const std::string& key, const Config&);
Settings selective_if_true(const Setting& s, const std::string& key, const Config&);
Settings full_if_true(const Setting& s, const std::string& key, const Config&);
Settings one_if_true(const Setting& s, const std::string& key, const Config&);
Settings three_if_true(const Setting& s, const std::string& key, const Config&);
Settings document_if_true(const Setting& s, const std::string& key, const Config&);
Settings first_step_if_true(const Setting& s, const std::string& key, const Config&);
Settings profile(const Setting& s, const std::string& key, const Config&);  // the steps that Megatron profiles

// Words by table.
Settings dtype(const Setting& s, const std::string& key, const Config&);
Settings tp_mode(const Setting& s, const std::string& key, const Config&);
Settings nanotron_z_loss(const Setting& s, const std::string& key, const Config&);  // whether there is one
/// The value, if training.z_loss_coef is positive so far.
Settings if_positive(const Setting& s, const std::string& key, const Config& so_far);
Settings nanotron_engine(const Setting& s, const std::string& key, const Config&);
Settings schedule(const Setting& s, const std::string& key, const Config&);  // torchtitan
Settings adam_is_adamw(const Setting& s, const std::string& key, const Config&);
Settings nanotron_scaling(const Setting& s, const std::string& key, const Config&);
Settings hf_optim(const Setting& s, const std::string& key, const Config&);
Settings hf_fsdp(const Setting& s, const std::string& key, const Config&);
Settings resume(const Setting& s, const std::string& key, const Config&);
Settings memory_snapshot(const Setting& s, const std::string& key, const Config&);

// One foreign setting that sets several keys.
Settings hidden_dropout(const Setting& s, const std::string& key, const Config&);
Settings virtual_stages(const Setting& s, const std::string& key, const Config&);
Settings weights_and_paths(const Setting& s, const std::string& key, const Config&);  // w1 p1 w2 p2, or one path
Settings folders(const Setting& s, const std::string& key, const Config&);
Settings weights(const Setting& s, const std::string& key, const Config&);

// Translations that read other settings: their aliases are late.
Settings beta1(const Setting& s, const std::string& key, const Config& so_far);
Settings beta2(const Setting& s, const std::string& key, const Config& so_far);
Settings tokens_as_sequences(const Setting& s, const std::string& key, const Config& so_far);
Settings elements_as_mb(const Setting& s, const std::string& key, const Config& so_far);
Settings document_in_every_stage(const Setting& s, const std::string& key, const Config& so_far);
Settings times_tp(const Setting& s, const std::string& key, const Config& so_far);
Settings shard_degree(const Setting& s, const std::string& key, const Config& so_far);
Settings fsdp_if_sharded(const Setting& s, const std::string& key, const Config& so_far);
Settings nanotron_no_decay(const Setting& s, const std::string& key, const Config& so_far);
Settings dataset_unless_path(const Setting& s, const std::string& key, const Config& so_far);
Settings vocab_file(const Setting& s, const std::string& key, const Config& so_far);
Settings folder_unless_given(const Setting& s, const std::string& key, const Config& so_far);
Settings layers_of_virtual_stage(const Setting& s, const std::string& key, const Config& so_far);
Settings first_profiled(const Setting& s, const std::string& key, const Config& so_far);
Settings last_profiled(const Setting& s, const std::string& key, const Config& so_far);

// Learning rate schedules (lr_translations.cpp).
Settings nanotron_decay(const Setting& s, const std::string& key, const Config&);
Settings torchtitan_decay(const Setting& s, const std::string& key, const Config&);
Settings megatron_decay(const Setting& s, const std::string& key, const Config&);
Settings hf_decay(const Setting& s, const std::string& key, const Config&);
Settings deepspeed_scheduler(const Setting& s, const std::string& key, const Config&);
Settings factor_of_lr(const Setting& s, const std::string& key, const Config& so_far);
Settings ratio_of_steps(const Setting& s, const std::string& key, const Config& so_far);       // torchtitan
Settings length_after_warmup(const Setting& s, const std::string& key, const Config& so_far);  // nanotron
Settings constant_warmup(const Setting& s, const std::string& key, const Config& so_far);
Settings samples_as_steps(const Setting& s, const std::string& key, const Config& so_far);  // Megatron
Settings train_samples(const Setting& s, const std::string& key, const Config& so_far);
Settings wsd_length(const Setting& s, const std::string& key, const Config& so_far);
Settings wsd_samples(const Setting& s, const std::string& key, const Config& so_far);
Settings wsd_style(const Setting& s, const std::string& key, const Config& so_far);
Settings fraction_of_decay(const Setting& s, const std::string& key, const Config& so_far);
Settings hf_warmup_steps(const Setting& s, const std::string& key, const Config& so_far);  // HF Trainer
Settings hf_warmup_ratio(const Setting& s, const std::string& key, const Config& so_far);
Settings hf_constant(const Setting& s, const std::string& key, const Config& so_far);
Settings hf_time_scale(const Setting& s, const std::string& key, const Config& so_far);
Settings hf_wsd_style(const Setting& s, const std::string& key, const Config& so_far);
Settings hf_min_ratio(const Setting& s, const std::string& key, const Config& so_far);
Settings only_one(const Setting& s, const std::string& key, const Config&);
Settings peak_lr(const Setting& s, const std::string& key, const Config&);  // DeepSpeed

}  // namespace translations
}  // namespace trireme::config
