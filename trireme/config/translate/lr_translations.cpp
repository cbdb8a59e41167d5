// Translations of other trainers' learning rate schedules. What depends on a whole file is in trainer_schedule.cpp.
#include <algorithm>
#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/config/translate/translating.hpp"
#include "trireme/config/translate/translations.hpp"

namespace trireme::config::translations {
namespace {

using namespace translating;

double number_from(const Setting& s, double least, double most) {
  const double number = number_or_throw(s);
  require<ConfigError>(least <= number && number <= most, s.path, " = ", brief(s.value), " is not between ", least,
                       " and ", most);
  return number;
}

/// Megatron counts its schedule in samples, each step by the global batch.
double in_steps(const Setting& s, const Config& so_far) {
  const std::int64_t batch = so_far.training.global_batch_size;
  require<ConfigError>(batch > 0, s.path, " = ", brief(s.value), " counts samples: it needs --global-batch-size");
  return number_from(s, 0, 1e15) / static_cast<double>(batch);
}

/// Megatron's WSD without its style, until wsd_style() has seen it.
bool is_wsd(const Config& so_far) { return so_far.lr_scheduler.decay == "exponential"; }

}  // namespace

Settings nanotron_decay(const Setting& s, const std::string& key, const Config&) {
  return by_table(s, key, {{"linear", {"linear"}}, {"cosine", {"cosine"}}, {"1-sqrt", {"1-sqrt"}}});
}

Settings torchtitan_decay(const Setting& s, const std::string& key, const Config&) {
  return by_table(s, key, {{"linear", {"linear"}}, {"cosine", {"cosine"}}, {"sqrt", {"1-sqrt"}}});
}

Settings megatron_decay(const Setting& s, const std::string& key, const Config&) {
  static const Words words = {{"constant", {"constant"}},
                              {"linear", {"linear"}},
                              {"cosine", {"cosine"}},
                              {"inverse-square-root", {"inverse-sqrt"}},
                              {"wsd", {"exponential"}}};
  return by_table(s, key, words);
}

Settings hf_decay(const Setting& s, const std::string& key, const Config&) {
  // polynomial: its default power is 1, and its default lr_end 1e-7 (trainer_schedule.cpp).
  static const Words words = {{"linear", {"linear"}},
                              {"cosine", {"cosine"}},
                              {"inverse_sqrt", {"inverse-sqrt"}},
                              {"warmup_stable_decay", {"cosine"}},
                              {"cosine_with_min_lr", {"cosine"}},
                              {"polynomial", {"linear"}},
                              {"constant", {"constant"}},
                              {"constant_with_warmup", {"constant"}}};
  return by_table(s, key, words);
}

Settings deepspeed_scheduler(const Setting& s, const std::string& key, const Config&) {
  return by_table(s, key, {{"warmuplr", {"constant"}}, {"warmupdecaylr", {"linear"}}, {"warmupcosinelr", {"cosine"}}});
}

Settings factor_of_lr(const Setting& s, const std::string& key, const Config& so_far) {
  return one(s, key, {number_or_throw(s) * so_far.optimizer.lr});
}

/// torchtitan's decay_ratio: rounded as Python does, and never into the warm-up. Without a decay it begins at the end.
Settings ratio_of_steps(const Setting& s, const std::string& key, const Config& so_far) {
  const auto steps = static_cast<double>(so_far.training.steps);
  const double warmup = std::min<double>(so_far.lr_scheduler.warmup_steps, steps);
  const double length = std::min(std::nearbyint(number_from(s, 0, 1) * steps), steps - warmup);
  return length > 0 ? one(s, key, {length}) : one(s, "lr_scheduler.decay_start_step", {steps});
}

/// nanotron's lr_decay_steps follow the warm-up, unless lr_decay_starting_step says otherwise.
Settings length_after_warmup(const Setting& s, const std::string& key, const Config& so_far) {
  const LrSchedulerConfig& schedule = so_far.lr_scheduler;
  const double length = number_from(s, 0, 1e15);
  const double start = schedule.decay_start_step < 0 ? schedule.warmup_steps : schedule.decay_start_step;
  Settings out;
  if (schedule.decay_start_step < 0) out = one(s, "lr_scheduler.decay_start_step", {start});
  // A decay of no length ends where it begins; 0 as a length would be derived.
  const double end = start == schedule.warmup_steps ? start + 1 : start;
  out.push_back(length > 0 ? Setting{key, {length}, s.place} : Setting{"lr_scheduler.decay_end_step", {end}, s.place});
  return out;
}

/// nanotron's constant warm-up has the full rate: there is none, but the decay begins after it.
Settings constant_warmup(const Setting& s, const std::string& key, const Config& so_far) {
  const LrSchedulerConfig& schedule = so_far.lr_scheduler;
  if (std::get<std::string>(by_table(s, key, {{"linear", {"linear"}}, {"constant", {"constant"}}})[0].value.data) ==
      "linear")
    return {};
  Settings out = one(s, key, {0.0});
  if (schedule.decay_start_step < 0)
    out.push_back({"lr_scheduler.decay_start_step", {schedule.warmup_steps.count}, s.place});
  return out;
}

Settings samples_as_steps(const Setting& s, const std::string& key, const Config& so_far) {
  return one(s, key, {in_steps(s, so_far)});
}

/// Megatron drops an incomplete last step, but its decay goes on to the last sample.
Settings train_samples(const Setting& s, const std::string& key, const Config& so_far) {
  const double steps = in_steps(s, so_far);
  Settings out = one(s, key, {std::floor(steps)});
  if (std::floor(steps) != steps && so_far.lr_scheduler.decay_end_step == 0)
    out.push_back({"lr_scheduler.decay_end_step", {steps}, s.place});
  return out;
}

Settings wsd_length(const Setting& s, const std::string& key, const Config& so_far) {
  return is_wsd(so_far) ? one(s, key, {number_from(s, 0, 1e15)}) : Settings{};
}
Settings wsd_samples(const Setting& s, const std::string& key, const Config& so_far) {
  return is_wsd(so_far) ? samples_as_steps(s, key, so_far) : Settings{};
}
Settings wsd_style(const Setting& s, const std::string& key, const Config& so_far) {
  if (!is_wsd(so_far)) return {};
  return by_table(
      s, key,
      {{"linear", {"linear"}}, {"cosine", {"cosine"}}, {"exponential", {"exponential"}}, {"minus_sqrt", {"1-sqrt"}}});
}

/// Megatron's warm-up as a part of --lr-decay-iters, or of the run.
Settings fraction_of_decay(const Setting& s, const std::string& key, const Config& so_far) {
  const double end = so_far.lr_scheduler.decay_end_step > 0 ? double{so_far.lr_scheduler.decay_end_step}
                                                            : static_cast<double>(so_far.training.steps);
  return one(s, key, {number_from(s, 0, 1) * end});
}

/// The HF Trainer reads a number below 1 as a share of the steps.
Settings hf_warmup_steps(const Setting& s, const std::string& key, const Config& so_far) {
  const double number = number_from(s, 0, 1e15);
  return one(s, key,
             {number < 1 ? std::ceil(number * static_cast<double>(so_far.training.steps)) : std::floor(number)});
}
/// The HF Trainer prefers warmup_steps.
Settings hf_warmup_ratio(const Setting& s, const std::string& key, const Config& so_far) {
  if (so_far.lr_scheduler.warmup_steps > 0) return {};
  return one(s, key, {std::ceil(number_from(s, 0, 1) * static_cast<double>(so_far.training.steps))});
}
/// The HF Trainer's "constant" has no warm-up, whatever warmup_steps says.
Settings hf_constant(const Setting& s, const std::string& key, const Config&) {
  return lower(word_of(s.value)) == "constant" ? one(s, key, {0.0}) : Settings{};
}
/// Its inverse_sqrt without a warm-up has a time scale of 10,000 steps.
Settings hf_time_scale(const Setting& s, const std::string& key, const Config& so_far) {
  const LrSchedulerConfig& schedule = so_far.lr_scheduler;
  const bool without = schedule.decay == "inverse-sqrt" && schedule.warmup_steps == 0 && schedule.decay_steps == 0;
  return without ? one(s, key, {10'000.0}) : Settings{};
}
/// The decay of its warmup_stable_decay.
Settings hf_wsd_style(const Setting& s, const std::string& key, const Config&) {
  return by_table(s, key, {{"linear", {"linear"}}, {"cosine", {"cosine"}}, {"1-sqrt", {"1-sqrt"}}});
}
/// Of its warmup_stable_decay: the warm-up starts there, too.
Settings hf_min_ratio(const Setting& s, const std::string& key, const Config& so_far) {
  const Value rate{number_from(s, 0, 1) * so_far.optimizer.lr};
  return {{key, rate, s.place}, {"lr_scheduler.start_lr", rate, s.place}};
}
/// The power of its polynomial decay.
Settings only_one(const Setting& s, const std::string&, const Config&) {
  require<NoCounterpart>(number_or_throw(s) == 1, s.path, " = ", brief(s.value),
                         " has no counterpart here: only 1 has");
  return {};
}

/// DeepSpeed's schedulers replace the optimizer's learning rate.
Settings peak_lr(const Setting& s, const std::string& key, const Config&) { return one(s, key, s.value); }

}  // namespace trireme::config::translations
