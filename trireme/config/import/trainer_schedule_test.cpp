// Imported schedules against the formulas of each trainer, written out here as its source has them, step by step.
#include "trireme/config/import/trainer_schedule.hpp"

#include <cmath>
#include <functional>
#include <numbers>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "trireme/config/import/import.hpp"
#include "trireme/config/schema/lr_schedule.hpp"
#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

using ::testing::HasSubstr;
using Rate = std::function<double(double)>;  // of the steps that are done

constexpr double kPi = std::numbers::pi;

/// Imports `contents` and compares each step's rate with `theirs`.
void expect_rates(const std::string& file, const std::string& contents, std::int64_t steps, const Rate& theirs) {
  const Imported imported = import_config(file, contents);
  LoadedConfig loaded = load(imported.toml);
  derive(loaded);
  RC_ASSERT(loaded.config.training.steps == steps);
  const LrSchedule lr(lr_options(loaded.config));
  for (std::int64_t step = 1; step <= steps; ++step) {
    const double wanted = theirs(static_cast<double>(step - 1));
    if (!(std::abs(lr(step) - wanted) <= 1e-12 * loaded.config.optimizer.lr))
      RC_FAIL(
          text("step ", step, " of ", steps, ": ", lr(step), ", theirs ", wanted, "\n", contents, "\n", imported.toml));
  }
}

RC_GTEST_PROP(TrainerSchedule, OfNanotron, ()) {
  Dice dice;
  const int steps = dice.pick(1, 60), warmup = dice.toss() ? 0 : dice.pick(1, 30);
  const std::string style = dice.one_of<std::string>({"linear", "cosine", "1-sqrt"});
  const bool constant_warmup = dice.pick(0, 4) == 0, has_min = dice.toss();
  const double peak = 0.004, least = has_min ? 0.001 : peak;  // min_decay_lr: None is the learning rate
  std::optional<int> start, length;
  if (dice.toss()) start = warmup + dice.pick(0, 20);
  if (dice.toss()) length = dice.pick(0, 30);

  std::string yaml =
      text("tokens:\n  train_steps: ", steps,
           "\noptimizer:\n  learning_rate_scheduler:\n    learning_rate: 0.004\n    lr_warmup_steps: ", warmup,
           "\n    lr_warmup_style: ", constant_warmup ? "constant" : "linear", "\n    lr_decay_style: ", style, "\n");
  if (start) yaml += text("    lr_decay_starting_step: ", *start, "\n");
  if (length) yaml += text("    lr_decay_steps: ", *length, "\n");
  if (has_min) yaml += "    min_decay_lr: 0.001\n";

  const double decay_start = start.value_or(warmup);
  const double decay_steps = length ? *length : steps - warmup - start.value_or(0);
  RC_PRE(warmup > 0 || decay_steps != 0);  // nanotron would then multiply its learning rate by itself
  expect_rates("x.yaml", yaml, steps, [&](double step) {
    if (step <= warmup) return constant_warmup ? peak : peak * step / std::max(warmup, 1);
    if (step < decay_start) return peak;
    if (step < decay_start + decay_steps) {
      const double t = (step - decay_start) / decay_steps;
      if (style == "cosine") return least + (peak - least) * (1 + std::cos(kPi * t)) / 2;
      if (style == "linear") return least + (peak - least) * (1 - t);
      return least + (peak - least) * (1 - std::sqrt(t));
    }
    return least;
  });
}

RC_GTEST_PROP(TrainerSchedule, OfTorchtitan, ()) {
  Dice dice;
  const int steps = dice.pick(1, 60), asked_warmup = dice.pick(0, 40);
  const std::string type = dice.one_of<std::string>({"linear", "sqrt", "cosine"});
  const double factor = dice.toss() ? 0 : 0.1;
  const std::optional<double> ratio = dice.toss() ? std::optional(dice.pick(0, 20) / 20.0) : std::nullopt;
  std::string toml = text("[job]\ndump_folder = \"x\"\n[optimizer]\nlr = 0.004\n[training]\nsteps = ", steps,
                          "\n[lr_scheduler]\nwarmup_steps = ", asked_warmup, "\ndecay_type = \"", type,
                          "\"\nmin_lr_factor = ", factor, "\n");
  if (ratio) toml += text("decay_ratio = ", *ratio, "\n");

  const int warmup = std::min(asked_warmup, steps);
  int decay = steps - warmup;
  if (ratio) decay = std::min(static_cast<int>(std::nearbyint(steps * *ratio)), steps - warmup);
  const int stable = steps + 1 - warmup - decay;  // one more: the virtual last step
  expect_rates("x.toml", toml, steps, [&](double step) {
    if (step < warmup) return 0.004 * (step + 1) / warmup;
    if (step < warmup + stable) return 0.004;
    const double progress = (step + 1 - (warmup + stable)) / decay;
    const double left = type == "linear" ? 1 - progress
                        : type == "sqrt" ? 1 - std::sqrt(progress)
                                         : 0.5 * (1 + std::cos(kPi * progress));
    return 0.004 * (factor + (1 - factor) * left);
  });
}

/// 223 and 109 samples in steps of 6: the decay begins after 37.1666... - 18.1666... = 19 steps.
TEST(TrainerSchedule, ADifferenceOfFractionsIsWhole) {
  LoadedConfig loaded =
      load(import_config("x.sh",
                         "pretrain --global-batch-size 6 --lr 0.004 --lr-decay-style WSD --min-lr 0.0005 "
                         "--train-samples 223 --lr-wsd-decay-samples 109 --lr-wsd-decay-style minus_sqrt")
               .toml);
  derive(loaded);
  EXPECT_EQ(LrSchedule(lr_options(loaded.config))(20), 0.004);
}

RC_GTEST_PROP(TrainerSchedule, OfMegatron, ()) {
  Dice dice;
  const int batch = dice.pick(1, 16), steps = dice.pick(2, 60);
  const bool by_samples = dice.toss();
  const std::string style = dice.one_of<std::string>({"constant", "linear", "cosine", "inverse-square-root", "WSD"});
  const std::string wsd = dice.one_of<std::string>({"", "exponential", "linear", "cosine", "minus_sqrt"});
  const double peak = 0.004, least = dice.toss() ? 0 : 0.0005, init = dice.toss() ? 0 : 0.0001;

  std::string flags = text("pretrain --global-batch-size ", batch, " --lr ", peak, " --lr-decay-style ", style);
  if (least > 0) flags += text(" --min-lr ", least);
  if (init > 0) flags += text(" --lr-warmup-init ", init);
  // Everything below counts samples, as Megatron does.
  const int all = by_samples ? steps * batch + dice.pick(0, batch - 1) : steps * batch;
  flags += by_samples ? text(" --train-samples ", all) : text(" --train-iters ", steps);
  double decay = all;
  if (dice.toss()) {
    const int length = dice.pick(2, 80);
    decay = by_samples ? length : length * batch;
    flags += text(by_samples ? " --lr-decay-samples " : " --lr-decay-iters ", length);
  }
  double warmup = 0;
  if (const int kind = dice.pick(0, 2); kind == 1) {
    const int length =
        std::max(0, std::min(dice.pick(0, 30), static_cast<int>(by_samples ? decay : decay / batch) - 1));
    warmup = by_samples ? length : length * batch;
    flags += text(by_samples ? " --lr-warmup-samples " : " --lr-warmup-iters ", length);
  } else if (kind == 2) {
    warmup = 0.03 * decay;
    flags += " --lr-warmup-fraction 0.03";
  }
  double wsd_decay = 0;
  if (style == "WSD") {
    const int most = static_cast<int>((decay - warmup) / (by_samples ? 1 : batch));  // not into the warm-up
    RC_PRE(most >= 1);
    const int length = dice.pick(1, most);
    wsd_decay = by_samples ? length : length * batch;
    flags += text(by_samples ? " --lr-wsd-decay-samples " : " --lr-wsd-decay-iters ", length);
    if (!wsd.empty()) flags += " --lr-wsd-decay-style " + wsd;
  }
  expect_rates("x.sh", flags, steps, [&](double step) -> double {
    const double seen = step * batch;
    if (warmup > 0 && seen <= warmup) return init + (peak - init) * seen / warmup;
    if (style == "constant") return peak;
    if (seen > decay) return least;
    if (style == "inverse-square-root")
      return std::max(least, peak * std::sqrt(std::max(warmup, 1.0)) / std::sqrt(std::max(seen, 1.0)));
    const double ratio = (seen - warmup) / (decay - warmup);
    double left = 1;
    if (style == "linear") left = 1 - ratio;
    if (style == "cosine") left = 0.5 * (std::cos(kPi * ratio) + 1);
    if (const double start = decay - wsd_decay; style == "WSD" && seen > start) {
      const double t = (seen - start) / wsd_decay;
      left = wsd == "linear"       ? 1 - t
             : wsd == "cosine"     ? 0.5 * (std::cos(kPi * t) + 1)
             : wsd == "minus_sqrt" ? 1 - std::sqrt(t)
                                   : 2 * std::pow(0.5, t) - 1;
    }
    return least + left * (peak - least);
  });
}

RC_GTEST_PROP(TrainerSchedule, OfTheHfTrainer, ()) {
  Dice dice;
  const int steps = dice.pick(1, 60), given = dice.pick(0, 30);
  const std::string type =
      dice.one_of<std::string>({"", "linear", "cosine", "constant", "constant_with_warmup", "inverse_sqrt",
                                "polynomial", "cosine_with_min_lr", "warmup_stable_decay"});
  const double peak = 0.004;
  std::string json = text(R"({"output_dir": "x", "learning_rate": 0.004, "max_steps": )", steps);
  int warmup = 0;
  if (const int kind = dice.pick(0, 2); kind == 1) {
    warmup = given;
    json += text(R"(, "warmup_ratio": 0.5, "warmup_steps": )", given);
    if (given == 0) warmup = static_cast<int>(std::ceil(steps * 0.5));
  } else if (kind == 2) {
    warmup = static_cast<int>(std::ceil(steps * 0.07));
    json += R"(, "warmup_ratio": 0.07, "warmup_steps": 0)";
  }
  const int decay = dice.pick(1, 20);
  if (!type.empty()) json += R"(, "lr_scheduler_type": ")" + type + "\"";
  if (type == "cosine_with_min_lr") json += R"(, "lr_scheduler_kwargs": {"min_lr_rate": 0.1})";
  if (type == "warmup_stable_decay") {
    warmup = std::min(warmup, std::max(0, steps - decay));  // its stable phase must not be negative
    json = text(R"({"output_dir": "x", "learning_rate": 0.004, "max_steps": )", steps, R"(, "warmup_steps": )", warmup,
                R"(, "lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": {"num_decay_steps": )",
                std::min(decay, steps), R"(, "min_lr_ratio": 0.1, "decay_type": "linear"})");
  }
  json += "}";
  expect_rates("x.json", json, steps, [&](double step) -> double {
    if (type == "constant") return peak;
    if (type == "warmup_stable_decay") {
      const int length = std::min(decay, steps);
      const double stable = steps - warmup - length;
      if (step < warmup) return peak * (step / std::max(1, warmup) * 0.9 + 0.1);
      if (step < warmup + stable) return peak;
      return peak * ((1 - (step - warmup - stable) / std::max(1, length)) * 0.9 + 0.1);
    }
    if (step < warmup) return peak * step / std::max(1, warmup);
    const double progress = (step - warmup) / std::max(1, steps - warmup);
    if (type == "constant_with_warmup") return peak;
    if (type == "cosine") return peak * std::max(0.0, 0.5 * (1 + std::cos(kPi * progress)));
    if (type == "cosine_with_min_lr") return peak * (0.5 * (1 + std::cos(kPi * progress)) * 0.9 + 0.1);
    if (type == "polynomial") return step > steps ? 1e-7 : (peak - 1e-7) * (1 - progress) + 1e-7;
    if (type == "inverse_sqrt") {
      const double scale = warmup > 0 ? warmup : 10'000;
      return peak / std::sqrt((step + scale - warmup) / scale);
    }
    return peak * std::max(0.0, (steps - step) / std::max(1, steps - warmup));
  });
}

RC_GTEST_PROP(TrainerSchedule, OfDeepSpeed, ()) {
  Dice dice;
  const std::string type = dice.one_of<std::string>({"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"});
  const int asked_warmup = dice.pick(1, 30), total = std::max(2, asked_warmup) + dice.pick(1, 40);
  const bool linear = dice.toss(), with_trainer = dice.toss();
  const bool ratio = type == "WarmupCosineLR";
  const double least = dice.toss() || ratio ? 0 : 0.0005;
  const bool own_peak = !ratio && dice.toss();
  std::string scheduler = text(R"({"type": ")", type, R"(", "params": {"warmup_num_steps": )", asked_warmup);
  if (linear) scheduler += R"(, "warmup_type": "linear")";
  if (least > 0) scheduler += text(R"(, "warmup_min_lr": )", least);
  if (own_peak) scheduler += R"(, "warmup_max_lr": 0.002)";
  scheduler += text(R"(, "total_num_steps": )", total, "}}");
  const std::string optimizer = R"("optimizer": {"type": "AdamW", "params": {"lr": 0.004}})";
  const int steps = with_trainer ? total + dice.pick(-2, 5) : total;
  const std::string json = with_trainer
                               ? text(R"({"output_dir": "x", "max_steps": )", steps, R"(, "deepspeed": {"scheduler": )",
                                      scheduler, ", ", optimizer, "}}")
                               : text(R"({"train_batch_size": 8, "scheduler": )", scheduler, ", ", optimizer, "}");

  const double warmup = std::max(2, asked_warmup);
  const double peak = own_peak ? 0.002 : type == "WarmupDecayLR" ? 0.001 : 0.004;
  expect_rates("x.json", json, steps, [&](double done) -> double {
    const double iteration = done - 1;  // the scheduler is stepped after the optimizer, and starts at -1
    if (iteration < 0) return least;
    if (iteration < warmup) {
      const double part = linear ? iteration / warmup : std::log(iteration + 1) / std::log(warmup);
      return least + (peak - least) * part;
    }
    if (type == "WarmupLR") return peak;
    if (type == "WarmupDecayLR")
      return least + (peak - least) * std::max(0.0, (total - iteration) / std::max(1.0, total - warmup));
    const double progress = std::min(1.0, (iteration - warmup + 1) / std::max(1.0, total - warmup));
    return peak * (0.0001 + (1 - 0.0001) * (1 + std::cos(kPi * progress)) / 2);
  });
}

TEST(TrainerSchedule, OneThatWeDoNotHaveIsRefused) {
  EXPECT_THAT(message_of<ConfigError>([] {
                import_config(
                    "x.yaml",
                    "optimizer:\n  learning_rate_scheduler:\n    lr_warmup_steps: 9\n    lr_decay_starting_step: 5\n");
              }),
              HasSubstr("before the end of the warm-up"));
  EXPECT_THAT(message_of<ConfigError>([] { import_config("x.sh", "run --lr-decay-style WSD"); }),
              HasSubstr("without --lr-wsd-decay-iters"));
  EXPECT_THAT(message_of<ConfigError>([] { import_config("x.sh", "run --train-samples 100"); }),
              HasSubstr("needs --global-batch-size"));
}

TEST(TrainerSchedule, ANameWithoutACounterpartIsLeftOut) {
  const Imported trainer =
      import_config("x.json", R"({"output_dir": "x", "lr_scheduler_type": "cosine_with_restarts", "seed": 7})");
  EXPECT_EQ(trainer.notes.front(),
            "lr_scheduler_type = \"cosine_with_restarts\" has no counterpart here (known: constant, "
            "constant_with_warmup, cosine, cosine_with_min_lr, inverse_sqrt, linear, polynomial, warmup_stable_decay); "
            "set lr_scheduler.decay");
  EXPECT_EQ(load(trainer.toml).config.run.seed, 7);
  EXPECT_FALSE(load(trainer.toml).is_given("lr_scheduler.decay"));
  const Imported deepspeed =
      import_config("x.json", R"({"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": 0.5}},
                                  "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1}}})");
  EXPECT_THAT(deepspeed.notes.back(), HasSubstr("set model.preset"));
  EXPECT_THAT(deepspeed.notes.at(1), HasSubstr("scheduler.type = \"OneCycle\" has no counterpart here (known: "
                                               "warmupcosinelr, warmupdecaylr, warmuplr)"));
  EXPECT_EQ(load(deepspeed.toml).config.optimizer.lr, 0.5);
}

}  // namespace
}  // namespace trireme::config
