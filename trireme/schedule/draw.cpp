#include "trireme/schedule/draw.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "trireme/base/drawing.hpp"
#include "trireme/base/error.hpp"

namespace trireme::schedule {
namespace {

struct Look {
  const char* ansi;  // foreground and background
  const char* fill;  // colour in SVG
};
// In the order of ActionKind: forward green, backward blue, I light blue, W teal (yellow in a terminal without teal).
constexpr std::array<Look, 4> kLooks{
    {{"\x1b[30;42m", "#8ecf8e"}, {"\x1b[97;44m", "#7fa8e6"}, {"\x1b[30;46m", "#a9d3f2"}, {"\x1b[30;43m", "#5fb8b0"}}};
const Look& look(ActionKind op) { return kLooks[static_cast<std::size_t>(op)]; }

std::string label(const Schedule& schedule, const Action& step) {
  const std::string whole = str(step);
  return schedule.chunks_per_rank() > 1 ? whole : whole.substr(whole.find_first_not_of("0123456789"));
}

/// The duration of the shortest action: one unit of the drawing.
double time_unit(const Replay& replay) {
  double unit = std::numeric_limits<double>::infinity();
  for (const RankReplay& rank : replay.ranks)
    for (const Interval& step : rank.steps)
      if (step.end > step.start) unit = std::min(unit, step.end - step.start);
  return std::isfinite(unit) ? unit : 1;
}

std::size_t longest_label(const Schedule& schedule) {
  std::size_t longest = 1;
  for (const Program& program : schedule.programs)
    for (const Action& step : program) longest = std::max(longest, label(schedule, step).size());
  return longest;
}

std::string fixed(double value, int digits = 2) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*f", digits, value);
  return buffer.data();
}

/// The longest text that fits into `width` columns: the label, or kind and microbatch, or the kind alone; the last two
/// in lower case for a rank's later chunks. Padded to the width, with a space at the end if there is room.
std::string cell(const Schedule& schedule, const Program& program, const Action& step, int width, bool color) {
  const auto room = static_cast<std::size_t>(width);
  std::string name = label(schedule, step);
  if (name.size() > room) {
    name = name.substr(name.find_first_of("FBIW"));
    const bool later = std::ranges::any_of(program, [&](const Action& other) { return other.chunk < step.chunk; });
    if (later) name[0] = static_cast<char>(name[0] - 'A' + 'a');
    if (name.size() > room) name.resize(1);
  }
  if (name.size() == room) return name;
  name.resize(room, color ? ' ' : '-');
  name.back() = ' ';
  return name;
}

}  // namespace

const char* svg_fill(ActionKind op) { return look(op).fill; }

std::string draw_text(const Schedule& schedule, const Replay& replay, const DrawOptions& options) {
  const double unit = time_unit(replay);
  const std::size_t margin = text("rank ", schedule.ranks() - 1, " ").size();
  const int room = std::max(8, options.width - static_cast<int>(margin));
  const double units = std::ceil(replay.makespan / unit - 1e-9);
  const int columns_a_unit = static_cast<int>(
      std::clamp(std::floor(room / std::max(1.0, units)), 1.0, static_cast<double>(longest_label(schedule)) + 1));
  // Nothing is drawn past the available width, so columns are clamped to it.
  const auto column = [&](double time) {
    return static_cast<int>(std::min(std::round(time / unit * columns_a_unit), room + 1.0));
  };
  const int shown = std::min(room, column(replay.makespan));

  std::string out;
  for (int r = 0; r < schedule.ranks(); ++r) {
    std::string head = text("rank ", r);
    head.resize(margin, ' ');
    out += head;
    int at = 0;
    const Program& program = schedule.programs[static_cast<std::size_t>(r)];
    const std::vector<Interval>& times = replay.ranks[static_cast<std::size_t>(r)].steps;
    for (std::size_t i = 0; i < times.size(); ++i) {
      const int begin = column(times[i].start), end = std::min(shown, column(times[i].end));
      if (begin >= end) continue;
      out += std::string(static_cast<std::size_t>(begin - at), '.');
      const std::string drawn = cell(schedule, program, program[i], end - begin, options.color);
      out += options.color ? look(program[i].op).ansi + drawn + "\x1b[0m" : drawn;
      at = end;
    }
    out += std::string(static_cast<std::size_t>(std::max(0, shown - at)), '.');
    out += "\n";
  }
  if (shown < column(replay.makespan))
    out += text("(the first ", fixed(100.0 * shown / (replay.makespan / unit * columns_a_unit), 0),
                "% of the time; --svg FILE draws all of it)\n");
  return out;
}

std::string draw_svg(const Schedule& schedule, const Replay& replay) {
  constexpr int kRow = 30, kBar = 24, kLeft = 64, kTop = 34;
  const double scale = (8.0 * static_cast<double>(longest_label(schedule)) + 6) / time_unit(replay);
  const double width = kLeft + replay.makespan * scale + 10;
  const int height = kTop + schedule.ranks() * kRow + 30;

  const std::string whole = summary(schedule, replay), caption = whole.substr(0, whole.find('\n'));
  Drawing out(height, caption, width);
  out.label({8, 20}, caption, {.size = 14});
  for (int r = 0; r < schedule.ranks(); ++r) {
    const int y = kTop + r * kRow;
    out.label({8, y + 17.0}, text("rank ", r));
    out.rect(kLeft, y, replay.makespan * scale, kBar, {.fill = "#eeeeee"});
    const Program& program = schedule.programs[static_cast<std::size_t>(r)];
    const std::vector<Interval>& times = replay.ranks[static_cast<std::size_t>(r)].steps;
    for (std::size_t i = 0; i < times.size(); ++i) {
      const double x = kLeft + times[i].start * scale, w = (times[i].end - times[i].start) * scale;
      out.rect(x, y, w, kBar,
               {.fill = svg_fill(program[i].op),
                .stroke = "white",
                .tip = text(str(program[i]), ": ", fixed(times[i].start), " to ", fixed(times[i].end))});
      out.label({x + w / 2, y + 17.0}, label(schedule, program[i]), {.anchor = Anchor::middle});
    }
  }
  out.label({8, height - 8.0}, "F forward, B backward, I input gradient, W weight gradient; grey is idle",
            {.colour = kDimInk});
  return out.svg();
}

std::string summary(const Schedule& schedule, const Replay& replay) {
  int live = 0, held = 0;
  for (const RankReplay& rank : replay.ranks) {
    live = std::max(live, rank.peak_live);
    held = std::max(held, rank.peak_held);
  }
  const auto stages = [&](int chunks) { return fixed(static_cast<double>(chunks) / replay.chunks_per_rank); };
  std::string out =
      text(schedule.name, ": ", schedule.ranks(), schedule.ranks() == 1 ? " rank, " : " ranks, ", schedule.microbatches,
           schedule.microbatches == 1 ? " microbatch, " : " microbatches, ", schedule.chunks_per_rank(),
           schedule.chunks_per_rank() == 1 ? " chunk" : " chunks", " per rank: makespan ", fixed(replay.makespan),
           ", bubble ", fixed(replay.bubble), " (", fixed(100 * replay.bubble_share(), 1), "% of the time)\n");
  out += text("peak activations per rank: ", stages(live), " microbatches of a stage until the input gradient, ",
              stages(held), " until the weight gradient\n");
  return out;
}

}  // namespace trireme::schedule
