#include "trireme/cli/plan_drawing.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/svg.hpp"

namespace trireme::cli {
namespace {

constexpr double kWidth = 720, kHeight = 420, kLeft = 80, kRight = 20, kTop = 40, kBottom = 50;

}  // namespace

std::string plan_drawing_svg(const std::vector<planner::Plan>& plans, double memory_bytes) {
  double fastest = 0;
  for (const planner::Plan& plan : plans) fastest = std::max(fastest, plan.tokens_per_second);
  const double most_gib = memory_bytes / (1024.0 * 1024 * 1024), most_speed = std::max(1.0, 1.05 * fastest);
  const auto x = [&](double gib) { return kLeft + (kWidth - kLeft - kRight) * gib / most_gib; };
  const auto y = [&](double speed) { return kHeight - kBottom - (kHeight - kTop - kBottom) * speed / most_speed; };
  const auto gib_of = [](const planner::Plan& plan) { return plan.memory_bytes / (1024.0 * 1024 * 1024); };
  std::string out =
      text("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", kWidth, " ", kHeight,
           "\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
           "<text x=\"", kLeft, "\" y=\"24\" font-size=\"15\">Memory and speed of layouts, predicted</text>\n");
  for (const double gib : ticks_between(0, most_gib))
    out += text("<line x1=\"", svg_number(x(gib)), "\" x2=\"", svg_number(x(gib)), "\" y1=\"", kTop, "\" y2=\"",
                kHeight - kBottom, "\" stroke=\"#ddd\"/><text x=\"", svg_number(x(gib)), "\" y=\"",
                kHeight - kBottom + 18, "\" text-anchor=\"middle\">", svg_number(gib), "</text>\n");
  for (const double speed : ticks_between(0, most_speed))
    out += text("<line x1=\"", kLeft, "\" x2=\"", kWidth - kRight, "\" y1=\"", svg_number(y(speed)), "\" y2=\"",
                svg_number(y(speed)), "\" stroke=\"#ddd\"/><text x=\"", kLeft - 8, "\" y=\"", svg_number(y(speed) + 4),
                "\" text-anchor=\"end\">", xml_escaped(human_count(speed)), "</text>\n");
  out += text("<text x=\"", (kLeft + kWidth) / 2, "\" y=\"", kHeight - 10,
              "\" text-anchor=\"middle\">memory per GPU, GiB</text>\n<text x=\"", kLeft, "\" y=\"", kTop - 4,
              "\">tokens per second</text>\n");
  std::vector<const planner::Plan*> by_memory;
  for (const planner::Plan& plan : plans) by_memory.push_back(&plan);
  std::ranges::sort(by_memory, {}, [&](const planner::Plan* plan) { return plan->memory_bytes; });
  std::string front;
  double best = 0;
  for (const planner::Plan* plan : by_memory) {
    if (plan->tokens_per_second <= best) continue;
    best = plan->tokens_per_second;
    front += text(front.empty() ? "" : " ", svg_number(x(gib_of(*plan))), ",", svg_number(y(best)));
  }
  out += text("<polyline fill=\"none\" stroke=\"#d55e00\" points=\"", front, "\"/>\n");
  for (const planner::Plan& plan : plans)
    out += text("<circle cx=\"", svg_number(x(gib_of(plan))), "\" cy=\"", svg_number(y(plan.tokens_per_second)),
                "\" r=\"5\" fill=\"#0072b2\"><title>", xml_escaped(planner::layout_text(plan.config)), ": ",
                xml_escaped(human_count(plan.tokens_per_second)), " tokens/s, ",
                xml_escaped(human_bytes(plan.memory_bytes)), "</title></circle>\n");
  return out + "</svg>\n";
}

}  // namespace trireme::cli
