// The pipeline of a traced step as measured, and as its schedule would be with actions of the measured mean times.
#include <algorithm>
#include <array>
#include <set>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/svg.hpp"
#include "trireme/describe/pipeline.hpp"
#include "trireme/report/sections.hpp"
#include "trireme/report/timeline.hpp"
#include "trireme/schedule/replay.hpp"

namespace trireme::report {
namespace {

using schedule::ActionKind;

const char* colour_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::F: return "forward";
    case ActionKind::B: return "backward";
    case ActionKind::I: return "input";
    case ActionKind::W: break;
  }
  return "weight";
}

const char* letter_of(ActionKind kind) { return std::array{"F", "B", "I", "W"}[static_cast<std::size_t>(kind)]; }

/// Of the actions of a rank, from the first to the last.
struct Busy {
  Span all;
  double idle = 0;
  double share() const { return all.length() > 0 ? idle / all.length() : 0; }
};

Busy busy_of(const RankTrace& rank) {
  Busy out;
  if (rank.actions.empty()) return out;
  out.all = {rank.actions.front().span.begin, rank.actions.front().span.end};
  double busy = 0;
  for (const TracedAction& action : rank.actions) {
    out.all.end = std::max(out.all.end, action.span.end);
    busy += action.span.length();
  }
  out.idle = out.all.length() - busy;
  return out;
}

TimelineRow measured_row(const RankTrace& rank) {
  TimelineRow row{.label = text("rank ", rank.rank)};
  std::set<int> chunks;
  for (const TracedAction& action : rank.actions) chunks.insert(action.chunk);
  for (const TracedAction& action : rank.actions) {
    const std::string name = text(letter_of(action.kind), action.microbatch);
    row.bars.push_back({action.span, colour_of(action.kind), chunks.size() > 1 ? text(action.chunk, name) : name,
                        text(name, chunks.size() > 1 ? text(", chunk ", action.chunk) : "", ": ",
                             human_seconds(action.span.length()))});
  }
  if (rank.update.length() > 0)
    row.bars.push_back({rank.update, "optimizer", "", text("update: ", human_seconds(rank.update.length()))});
  for (const TracedCall& call : rank.calls)
    if (call.op == "send" || call.op == "recv")
      row.bars.push_back({call.span, "transfer", "", text(call.what, ": ", human_seconds(call.span.length())), true});
  row.idle = busy_of(rank).all;
  return row;
}

/// The mean length of the actions of these kinds, over all ranks; 0: there are none.
double mean_length(const TracedStep& traced, ActionKind kind) {
  double sum = 0;
  int count = 0;
  for (const RankTrace& rank : traced.ranks)
    for (const TracedAction& action : rank.actions)
      if (action.kind == kind) sum += action.span.length(), ++count;
  return count > 0 ? sum / count : 0;
}

/// With actions of the mean lengths that were measured, and transfers that take no time.
std::optional<std::pair<schedule::Schedule, schedule::Replay>> ideal_of(const RunFiles& run, const TracedStep& traced) {
  if (!run.config || run.config->config.parallelism.pp < 2 || !run.is_of_last_layout(traced.step)) return std::nullopt;
  try {
    const Config& c = run.config->config;
    schedule::Schedule schedule = pipeline_schedule(c.parallelism, c.training.grad_accum);
    const double chunks = schedule.chunks_per_rank();
    const double input = mean_length(traced, ActionKind::I), weight = mean_length(traced, ActionKind::W),
                 both = mean_length(traced, ActionKind::B);
    schedule::Replay replayed = schedule::replay(schedule, {.F = chunks * mean_length(traced, ActionKind::F),
                                                            .I = chunks * (input > 0 ? input : both / 2),
                                                            .W = chunks * (weight > 0 ? weight : both / 2)});
    return std::pair(std::move(schedule), std::move(replayed));
  } catch (const Error&) {  // of a schedule file that has gone
    return std::nullopt;
  }
}

std::vector<TimelineRow> ideal_rows(const schedule::Schedule& schedule, const schedule::Replay& replayed,
                                    double begin) {
  std::vector<TimelineRow> rows;
  for (std::size_t r = 0; r < replayed.ranks.size(); ++r) {
    TimelineRow row{.label = text("stage ", r)};
    const std::vector<schedule::Interval>& times = replayed.ranks[r].steps;
    for (std::size_t i = 0; i < times.size(); ++i) {
      const schedule::Action& action = schedule.programs[r][i];
      const std::string name = text(letter_of(action.op), action.microbatch);
      row.bars.push_back({{begin + times[i].start, begin + times[i].end},
                          colour_of(action.op),
                          schedule.chunks_per_rank() > 1 ? text(action.chunk, name) : name,
                          text(name, ": ", human_seconds(times[i].end - times[i].start))});
    }
    if (!times.empty()) row.idle = Span{begin + times.front().start, begin + times.back().end};
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string bubble_table(const TracedStep& traced, std::size_t index) {
  HtmlTable table{.header = {"rank", "first to last action", "idle in it", "bubble"},
                  .rows = {},
                  .right = {false, true, true, true}};
  for (const RankTrace& rank : traced.ranks) {
    const Busy busy = busy_of(rank);
    table.rows.push_back(
        {text("rank ", rank.rank), human_seconds(busy.all.length()), human_seconds(busy.idle),
         figure_html(figure_name(index, text("bubble.rank", rank.rank)), busy.share(), percent_text(busy.share()))});
  }
  return table_html(table);
}

std::string gantt_of(const RunFiles& run, const TracedStep& traced, std::size_t index) {
  double seconds = 0, most = 0, begin = 1e300;
  for (const RankTrace& rank : traced.ranks) {
    seconds = std::max(seconds, rank.step.end);
    most = std::max(most, busy_of(rank).share());
    if (!rank.actions.empty()) begin = std::min(begin, rank.actions.front().span.begin);
  }
  std::vector<TimelineRow> rows;
  for (const RankTrace& rank : traced.ranks) rows.push_back(measured_row(rank));
  const auto ideal = ideal_of(run, traced);
  std::string caption = text("Step ", traced.step,
                             ". The bubble of a rank is the share of the time from its first to "
                             "its last action in which it waits; the largest: ",
                             figure_html(figure_name(index, "bubble.trace"), most, percent_text(most)), " measured");
  std::string drawing;
  if (ideal) {
    const auto share = [](const schedule::Replay& r) {
      double largest = 0;
      for (const schedule::RankReplay& rank : r.ranks)
        largest = std::max(largest, rank.idle > 0 ? rank.idle / (rank.idle + rank.busy) : 0);
      return largest;
    };
    const double equal = share(schedule::replay(ideal->first)), by_times = share(ideal->second);
    seconds = std::max(seconds, begin + ideal->second.makespan);
    caption += text(", ", figure_html(figure_name(index, "bubble.ideal"), equal, percent_text(equal)), " by ",
                    xml_escaped(ideal->first.name), " with stages of equal cost, ",
                    figure_html(figure_name(index, "bubble.ideal_measured"), by_times, percent_text(by_times)),
                    " by it with the mean times that were measured and free transfers (below)");
    drawing = text("<h4>measured</h4>", timeline_html(rows, seconds), "<h4>ideal, ", xml_escaped(ideal->first.name),
                   "</h4>", timeline_html(ideal_rows(ideal->first, ideal->second, begin), seconds));
  } else {
    drawing = timeline_html(rows, seconds);
  }
  std::set<ActionKind> kinds;
  for (const RankTrace& rank : traced.ranks)
    for (const TracedAction& action : rank.actions) kinds.insert(action.kind);
  std::string keys = "<div class=\"legend\">";
  for (const auto& [kind, name] :
       {std::pair{ActionKind::F, "F forward"}, std::pair{ActionKind::B, "B backward"},
        std::pair{ActionKind::I, "I input gradient"}, std::pair{ActionKind::W, "W weight gradient"}})
    if (kinds.contains(kind)) keys += key_html(colour_of(kind), name);
  keys += text(key_html("optimizer", "update"), key_html("transfer", "send, recv (thin)"),
               "<span class=\"entry\"><i class=\"hatch\"></i>idle</span></div>");
  return captioned_html(keys + drawing + bubble_table(traced, index), caption + ".");
}

}  // namespace

std::string gantt_html(const Runs& runs) {
  std::string out;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    out += run_heading(runs, runs[i]);
    if (const TracedStep* traced = drawn_step(runs[i]))
      out += earlier_layout_html(runs[i], traced->step) + gantt_of(runs[i], *traced, i);
    else
      out += no_trace_html(runs[i], "The pipeline of a step");
  }
  return out;
}

}  // namespace trireme::report
