#include "trireme/metrics/progress_bar.hpp"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/utf8.hpp"
#include "trireme/metrics/step_table.hpp"

namespace trireme::metrics {
namespace {

double share_done(const BarFacts& facts) {
  if (facts.steps <= 0) return 0;
  return std::clamp(static_cast<double>(facts.step) / static_cast<double>(facts.steps), 0.0, 1.0);
}

/// Rounded down, like the percentage: a bar is full only when everything is done.
std::string blocks(double share, int cells) {
  std::string out = "  ";
  for (int i = 0; i < cells; ++i) out += i < static_cast<int>(share * cells) ? "█" : "░";
  return out;
}

}  // namespace

std::string bar_text(const BarFacts& facts, int width) {
  const double share = share_done(facts);
  const std::string count = text("  ", facts.step, "/", facts.steps, "  ", static_cast<int>(100 * share), "%");
  const std::string loss = "   loss " + short_number(facts.loss, 3, 8);
  const std::string speed = text("   ", human_count(facts.tokens_per_sec), " tok/s");
  const std::string elapsed = "   elapsed " + human_seconds(std::round(facts.elapsed_s));
  const std::string left = "   ETA " + (facts.left_s ? human_seconds(std::round(*facts.left_s)) : "–");
  for (const std::string& line :
       {blocks(share, 28) + count + loss + speed + elapsed + left, blocks(share, 28) + count + loss + speed + left,
        blocks(share, 12) + count + loss + speed + left, blocks(share, 12) + count + loss + left,
        blocks(share, 12) + count + left, count})
    if (static_cast<int>(display_width(line)) < width) return line;
  return "";
}

}  // namespace trireme::metrics
