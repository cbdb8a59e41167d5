// Memory per rank for weights, gradients and optimizer states: ZeRO 0-3 on 1 to 8 ranks, by the planner.
#include <algorithm>
#include <array>
#include <cmath>

#include "tools/figures/figures.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/svg.hpp"
#include "trireme/describe/counts.hpp"
#include "trireme/planner/memory.hpp"

namespace trireme::figures {
namespace {

constexpr const char* kZeroModel = "llama3-8b";
constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr std::array kDataRanks{1, 2, 4, 8};
constexpr int kStages = 4;
constexpr std::array kPartColours{"#5b9bd5", "#eda13a", "#4db38a"};
constexpr std::array kStageTexts{"all replicated", "states sharded", "states, gradients sharded", "all sharded"};

Config zero_config(int stage, int ranks) {
  return config_of_preset(
      kZeroModel, {"model.dtype = \"bfloat16\"", text("parallelism.zero = ", stage), text("parallelism.dp = ", ranks)});
}

/// Weights, gradients and optimizer states (with master weights) of a rank, in GiB, from the bottom of a bar up.
std::array<double, 3> parts_of_rank(int stage, int ranks) {
  const planner::MemoryPlan plan = planner::predict_memory(zero_config(stage, ranks), "bfloat16");
  return {plan.weights / kGiB, plan.gradients / kGiB, (plan.master + plan.states) / kGiB};
}

}  // namespace

Drawing draw_zero() {
  constexpr double kLeft = 56, kRight = 12, kTop = 92, kFloor = 392, kBar = 32, kGap = 7;
  const Config config = zero_config(0, 1);
  const std::array<double, 3> most = parts_of_rank(0, 1);
  const double tick = tick_step(most[0] + most[1] + most[2]);
  const double top = std::ceil((most[0] + most[1] + most[2]) / tick) * tick;
  const auto y_of = [&](double gib) { return kFloor - gib / top * (kFloor - kTop); };

  Drawing out(458,
              "Memory per rank for weights, gradients and optimizer states with ZeRO 0 to 3 on 1, 2, 4 and 8 ranks");
  out.label({14, 26},
            text(kZeroModel, ", ", human_count(static_cast<double>(config::count_parameters(config.model).total())),
                 " parameters: GiB per rank"),
            {.size = 16, .bold = true});
  const std::array names{
      text("weights (", config.model.dtype, ")"), text("gradients (", config.precision.accumulate, ")"),
      text("master weights and ", config.optimizer.name, "'s states (", config.precision.master, ")")};
  double x = 14;
  for (std::size_t i = 0; i < names.size(); ++i) {
    out.rect(x, 43, 12, 12, {.fill = kPartColours[i]});
    out.label({x + 18, 53}, names[i]);
    x += 18 + estimated_width(names[i], 12) + 22;
  }
  out.label({14, 76}, "without activations, communication buffers and the units that stage 3 gathers",
            {.colour = kDimInk});

  for (const double gib : ticks_between(0, top)) {
    out.line({kLeft, y_of(gib)}, {kPageWidth - kRight, y_of(gib)}, {.stroke = gib == 0 ? kDimInk : kFaint});
    out.label({kLeft - 8, y_of(gib) + 4}, svg_number(gib), {.anchor = Anchor::end, .colour = kDimInk});
  }
  const double group = (kPageWidth - kLeft - kRight) / kStages;
  const double bars = kDataRanks.size() * kBar + (kDataRanks.size() - 1) * kGap;
  for (int stage = 0; stage < kStages; ++stage) {
    const double begin = kLeft + group * stage, middle = begin + group / 2;
    for (std::size_t n = 0; n < kDataRanks.size(); ++n) {
      const double bar = middle - bars / 2 + static_cast<double>(n) * (kBar + kGap);
      const std::array<double, 3> parts = parts_of_rank(stage, kDataRanks[n]);
      double sum = 0;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        out.rect(bar, y_of(sum + parts[i]), kBar, y_of(sum) - y_of(sum + parts[i]), {.fill = kPartColours[i]});
        sum += parts[i];
      }
      out.label({bar + kBar / 2, y_of(sum) - 5}, svg_number(sum, sum < 100 ? 1 : 0),
                {.anchor = Anchor::middle, .halo = true});
      out.label({bar + kBar / 2, kFloor + 16}, text(n == 0 ? "dp " : "", kDataRanks[n]),
                {.anchor = Anchor::middle, .colour = kDimInk});
    }
    out.label({middle, kFloor + 35}, text("zero ", stage), {.anchor = Anchor::middle, .bold = true});
    out.label({middle, kFloor + 50}, kStageTexts[static_cast<std::size_t>(stage)],
              {.size = 11, .anchor = Anchor::middle, .colour = kDimInk});
  }
  return out;
}

}  // namespace trireme::figures
