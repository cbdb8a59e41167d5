#include "trireme/config/import/trainer_schedule.hpp"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/lr_schedule.hpp"
#include "trireme/config/translate/translating.hpp"

namespace trireme::config {
namespace {

class Completer {
 public:
  Completer(Settings& taken, const LoadedConfig& loaded, const ScheduleFacts& facts)
      : taken_(taken), loaded_(loaded), facts_(facts), schedule_(loaded.config.lr_scheduler) {}

  /// A learning rate is a function of the steps that are done: the first step of a warm-up has a rate of 0.
  void nanotron() {
    const std::string scheduler = "optimizer.learning_rate_scheduler.";
    const Setting *given = find(scheduler + "lr_warmup_steps"), *style = find(scheduler + "lr_warmup_style");
    const double warmup = given != nullptr ? translating::number_or_throw(*given) : 0;
    const bool constant = style != nullptr && translating::lower(translating::word_of(style->value)) == "constant";
    if (find(scheduler + "learning_rate") == nullptr && given == nullptr) return;  // no schedule in this file
    add("lr_scheduler.min_lr", loaded_.config.optimizer.lr);
    if (warmup == 0 && !constant) {
      // Its first step has a rate of 0 even then.
      if (Setting* zero = find(scheduler + "lr_warmup_steps")) zero->value = {1.0};
      add("lr_scheduler.warmup_steps", 1.0);
      if (find(scheduler + "lr_decay_starting_step") == nullptr)
        taken_.push_back({scheduler + "lr_decay_starting_step", {0.0}, {loaded_.file, 0, 0, ""}});
    }
    if (!constant) add("lr_scheduler.start_delay", std::int64_t{1});
    const Setting* begin = find(scheduler + "lr_decay_starting_step");
    if (begin == nullptr) return;
    const double start = translating::number_or_throw(*begin);
    require<ConfigError>(start >= warmup, "lr_decay_starting_step = ", Steps(start),
                         " is before the end of the warm-up (lr_warmup_steps = ", Steps(warmup),
                         "): there is no such schedule here\n  fix: a decay that begins after the warm-up");
    // Without lr_decay_steps nanotron subtracts the warm-up and the start from the steps. If nothing is left, the rate
    // is min_decay_lr from the start on, but the last step of the warm-up has the full one.
    if (!loaded_.is_given("lr_scheduler.decay_steps") && !loaded_.is_given("lr_scheduler.decay_end_step"))
      add("lr_scheduler.decay_end_step",
          std::max(start == warmup ? start + 1 : start, static_cast<double>(steps()) - warmup));
  }

  void torchtitan() {
    if (Setting* warmup = find("lr_scheduler.warmup_steps"); warmup != nullptr && schedule_.warmup_steps > steps())
      warmup->value = {steps()};
  }

  void megatron() {
    first_step_at_rest();
    const LrSchedule::Options lr = lr_options(loaded_.config);
    if (const Setting* style = find("--lr-decay-style");
        style != nullptr && translating::lower(translating::word_of(style->value)) == "wsd") {
      require<ConfigError>(schedule_.decay_steps > 0,
                           "--lr-decay-style WSD without --lr-wsd-decay-iters\n  fix: add it");
      const double end = schedule_.decay_end_step > 0 ? double{schedule_.decay_end_step} : steps();
      require<ConfigError>(end - schedule_.decay_steps >= schedule_.warmup_steps - 1e-9,
                           "--lr-wsd-decay-iters: the last ", schedule_.decay_steps, " of ", Steps(end),
                           " steps begin before the end of the warm-up of ", schedule_.warmup_steps,
                           ": there is no such schedule here\n  fix: a shorter decay");
    }
    // Its unit is a sample, and the least that it divides by.
    const double unit = 1 / static_cast<double>(std::max<std::int64_t>(1, loaded_.config.training.global_batch_size));
    if (lr.decay == LrDecay::inverse_sqrt && lr.warmup_steps < unit) {
      add("lr_scheduler.decay_start_step", unit);
      add("lr_scheduler.decay_steps", unit);
    }
  }

  void hf_trainer() {
    if (find("scheduler.type") != nullptr) return deepspeed();
    first_step_at_rest();
    if (const Setting* type = find("lr_scheduler_type");
        type != nullptr && translating::word_of(type->value) == "polynomial")
      add("lr_scheduler.min_lr", 1e-7);
  }

  /// The rate is that of the step before the last one that is done: steps 1 and 2 both have the first.
  void deepspeed() {
    const Setting* type = find("scheduler.type");
    if (type == nullptr) return;
    add("lr_scheduler.start_delay", std::int64_t{2});
    add("lr_scheduler.warmup_shape", std::string("log"));
    if (!facts_.automatic.contains("scheduler.params.warmup_num_steps")) add("lr_scheduler.warmup_steps", 1000.0);
    double warmup = loaded_.is_given("lr_scheduler.warmup_steps") ? double{schedule_.warmup_steps} : 1000;
    if (warmup < 2) {
      warmup = 2;  // DeepSpeed's least
      if (Setting* given = find("scheduler.params.warmup_num_steps")) given->value = {warmup};
    }
    const std::string name = translating::lower(translating::word_of(type->value));
    const double total = total_steps();
    if (name == "warmupdecaylr") {
      if (find("scheduler.params.warmup_max_lr") == nullptr &&
          !facts_.automatic.contains("scheduler.params.warmup_max_lr"))
        taken_.push_back({"scheduler.params.warmup_max_lr", {0.001}, type->place});
      add("lr_scheduler.min_lr", schedule_.start_lr);
      add("lr_scheduler.decay_start_step", warmup + 1);
      add("lr_scheduler.decay_end_step", total + 1);
    } else if (name == "warmupcosinelr") {
      add("lr_scheduler.min_lr", 1e-4 * loaded_.config.optimizer.lr);
      add("lr_scheduler.decay_start_step", warmup);
      add("lr_scheduler.decay_end_step", total);
    }
  }

 private:
  std::int64_t steps() const { return loaded_.config.training.steps; }

  Setting* find(const std::string& path) {
    const auto it = std::ranges::find(taken_, path, &Setting::path);
    return it == taken_.end() ? nullptr : &*it;
  }

  template <class T>
  void add(const std::string& key, const T& value) {
    if (!loaded_.is_given(key)) taken_.push_back({key, {value}, {loaded_.file, 0, 0, ""}});
  }

  void first_step_at_rest() {
    if (schedule_.warmup_steps > 0) add("lr_scheduler.start_delay", std::int64_t{1});
  }

  double total_steps() const {
    return facts_.total ? translating::number_or_throw({"scheduler.params.total_num_steps", *facts_.total, {}})
                        : static_cast<double>(steps());
  }

  Settings& taken_;
  const LoadedConfig& loaded_;
  const ScheduleFacts& facts_;
  const LrSchedulerConfig& schedule_;
};

}  // namespace

void complete_schedule(Framework from, Settings& taken, const LoadedConfig& loaded, const ScheduleFacts& facts) {
  Completer completer(taken, loaded, facts);
  switch (from) {
    case Framework::nanotron: return completer.nanotron();
    case Framework::torchtitan: return completer.torchtitan();
    case Framework::megatron: return completer.megatron();
    case Framework::deepspeed: return completer.deepspeed();
    case Framework::hf_trainer: return completer.hf_trainer();
    case Framework::hf_config: return;
  }
}

}  // namespace trireme::config
