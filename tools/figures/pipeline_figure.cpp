// Four pipeline schedules on one time scale, generated and replayed.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tools/figures/figures.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/svg.hpp"
#include "trireme/schedule/draw.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/schedule/replay.hpp"

namespace trireme::figures {
namespace {

constexpr int kPipelineRanks = 4, kMicrobatches = 8;
constexpr double kRow = 20, kBarHeight = 18, kTimeLeft = 60, kPanelHead = 24, kPanelGap = 16;

struct Timed {
  schedule::Schedule schedule;
  schedule::Replay replay;
};

Timed timed(const char* name, int virtual_stages) {
  schedule::Schedule made = schedule::make_schedule(name, kPipelineRanks, kMicrobatches, virtual_stages);
  schedule::Replay replay = schedule::replay(made);
  return {std::move(made), std::move(replay)};
}

/// "bubble 9 (27.3% of the time)" and the activations that a rank holds at most, in microbatches of a stage.
std::string facts_of(const Timed& run) {
  double held = 0;
  for (const schedule::RankReplay& rank : run.replay.ranks)
    held = std::max(held, static_cast<double>(rank.peak_held) / run.replay.chunks_per_rank);
  const int chunks = run.schedule.chunks_per_rank();
  return text(chunks, chunks == 1 ? " chunk" : " chunks", " per rank: time ", svg_number(run.replay.makespan),
              ", bubble ", svg_number(run.replay.bubble), " (", svg_number(100 * run.replay.bubble_share(), 1),
              "% of the time), activations of ", svg_number(held, 1), " microbatches");
}

void draw_rank(Drawing& out, const Timed& run, int rank, double y, double scale) {
  out.label({kTimeLeft - 8, y + 13}, text("rank ", rank), {.size = 11, .anchor = Anchor::end});
  out.rect(kTimeLeft, y, run.replay.makespan * scale, kBarHeight, {.fill = kIdle});
  const schedule::Program& program = run.schedule.programs[static_cast<std::size_t>(rank)];
  const std::vector<schedule::Interval>& times = run.replay.ranks[static_cast<std::size_t>(rank)].steps;
  int first_chunk = program.front().chunk;
  for (const schedule::Action& action : program) first_chunk = std::min(first_chunk, action.chunk);
  for (std::size_t i = 0; i < program.size(); ++i) {
    const double x = kTimeLeft + times[i].start * scale, width = (times[i].end - times[i].start) * scale;
    const bool later = program[i].chunk != first_chunk;
    out.rect(x, y, width, kBarHeight, {.fill = schedule::svg_fill(program[i].op), .stroke = "white"});
    if (later) out.rect(x + 0.5, y + kBarHeight - 3.5, width - 1, 3, {.fill = kInk, .opacity = 0.55});
    out.label({x + width / 2, y + 13}, text(program[i].microbatch), {.size = 11, .anchor = Anchor::middle});
  }
}

void draw_legend(Drawing& out, double x, double y) {
  using schedule::ActionKind;
  const std::array<std::pair<ActionKind, const char*>, 4> kinds{{{ActionKind::F, "forward"},
                                                                 {ActionKind::B, "backward"},
                                                                 {ActionKind::I, "input gradient"},
                                                                 {ActionKind::W, "weight gradient"}}};
  const auto entry = [&](const char* fill, const char* words) {
    out.rect(x, y - 10, 14, 12, {.fill = fill});
    out.label({x + 20, y}, words);
    x += 20 + estimated_width(words, 12) + 14;
  };
  for (const auto& [kind, words] : kinds) entry(schedule::svg_fill(kind), words);
  entry(kIdle, "idle");
  out.rect(x, y - 1, 14, 3, {.fill = kInk, .opacity = 0.55});
  out.label({x + 20, y}, "a rank's second chunk");
}

}  // namespace

Drawing draw_pipeline() {
  const std::vector<Timed> runs = {timed("1f1b", 1), timed("interleaved-1f1b", 2), timed("zb1p", 1), timed("zbv", 1)};
  double longest = 0;
  for (const Timed& run : runs) longest = std::max(longest, run.replay.makespan);
  const double scale = (kPageWidth - kTimeLeft - 20) / longest;
  const double panel = kPanelHead + kPipelineRanks * kRow + kPanelGap, first = 64;
  const double axis = first + panel * static_cast<double>(runs.size()) - 4;

  Drawing out(axis + 44, "Four pipeline schedules of 4 ranks and 8 microbatches on one time scale, with their bubbles");
  out.label({14, 26}, text(kPipelineRanks, " pipeline ranks, ", kMicrobatches, " microbatches (numbers in the cells)"),
            {.size = 16, .bold = true});
  draw_legend(out, 14, 50);
  for (std::size_t n = 0; n < runs.size(); ++n) {
    const Timed& run = runs[n];
    const double y = first + panel * static_cast<double>(n);
    const double end = kTimeLeft + run.replay.makespan * scale;
    out.label({14, y + 16}, run.schedule.name, {.size = 13, .bold = true});
    out.label({14 + estimated_width(run.schedule.name, 13, true) + 12, y + 16}, facts_of(run), {.colour = kDimInk});
    for (int rank = 0; rank < run.schedule.ranks(); ++rank)
      draw_rank(out, run, rank, y + kPanelHead + rank * kRow, scale);
    out.line({end, y + kPanelHead - 3}, {end, axis}, {.stroke = kDimInk, .dashes = "4 3"});
  }
  out.line({kTimeLeft, axis}, {kTimeLeft + longest * scale, axis}, {.stroke = kDimInk});
  for (const double time : ticks_between(0, longest, 8)) {
    const double x = kTimeLeft + time * scale;
    out.line({x, axis}, {x, axis + 5}, {.stroke = kDimInk});
    out.label({x, axis + 18}, svg_number(time), {.size = 11, .anchor = Anchor::middle, .colour = kDimInk});
  }
  out.label({kTimeLeft + longest * scale / 2, axis + 35},
            "time; forward, input gradient and weight gradient of a stage take 1 each",
            {.anchor = Anchor::middle, .colour = kDimInk});
  return out;
}

}  // namespace trireme::figures
