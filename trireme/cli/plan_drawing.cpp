#include "trireme/cli/plan_drawing.hpp"

#include <algorithm>

#include "trireme/base/drawing.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/svg.hpp"

namespace trireme::cli {
namespace {

constexpr double kWidth = 720, kHeight = 420, kLeft = 80, kRight = 20, kTop = 56, kBottom = 50;

}  // namespace

std::string plan_drawing_svg(const std::vector<planner::Plan>& plans, double memory_bytes) {
  double fastest = 0;
  for (const planner::Plan& plan : plans) fastest = std::max(fastest, plan.tokens_per_second);
  const double most_gib = memory_bytes / (1024.0 * 1024 * 1024), most_speed = std::max(1.0, 1.05 * fastest);
  const auto x = [&](double gib) { return kLeft + (kWidth - kLeft - kRight) * gib / most_gib; };
  const auto y = [&](double speed) { return kHeight - kBottom - (kHeight - kTop - kBottom) * speed / most_speed; };
  const auto gib_of = [](const planner::Plan& plan) { return plan.memory_bytes / (1024.0 * 1024 * 1024); };
  Drawing out(kHeight, "Memory and speed of layouts, predicted", kWidth);
  out.label({kLeft, 24}, "Memory and speed of layouts, predicted", {.size = 15});
  for (const double gib : ticks_between(0, most_gib)) {
    out.line({x(gib), kTop}, {x(gib), kHeight - kBottom}, {.stroke = kFaint});
    out.label({x(gib), kHeight - kBottom + 18}, svg_number(gib), {.anchor = Anchor::middle});
  }
  for (const double speed : ticks_between(0, most_speed)) {
    out.line({kLeft, y(speed)}, {kWidth - kRight, y(speed)}, {.stroke = kFaint});
    out.label({kLeft - 8, y(speed) + 4}, human_count(speed), {.anchor = Anchor::end});
  }
  out.label({(kLeft + kWidth) / 2, kHeight - 10}, "memory per GPU, GiB", {.anchor = Anchor::middle});
  out.label({kLeft, kTop - 4}, "tokens per second");
  std::vector<const planner::Plan*> by_memory;
  for (const planner::Plan& plan : plans) by_memory.push_back(&plan);
  std::ranges::sort(by_memory, {}, [&](const planner::Plan* plan) { return plan->memory_bytes; });
  std::vector<Point> front;
  double best = 0;
  for (const planner::Plan* plan : by_memory) {
    if (plan->tokens_per_second <= best) continue;
    best = plan->tokens_per_second;
    front.push_back({x(gib_of(*plan)), y(best)});
  }
  out.polyline(front, {.stroke = "#d55e00"});
  for (const planner::Plan& plan : plans)
    out.circle({x(gib_of(plan)), y(plan.tokens_per_second)}, 5,
               {.fill = "#0072b2",
                .tip = text(planner::layout_text(plan.config), ": ", human_count(plan.tokens_per_second), " tokens/s, ",
                            human_bytes(plan.memory_bytes))});
  return out.svg();
}

}  // namespace trireme::cli
