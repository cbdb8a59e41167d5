// Communication and computation of a traced step: two rows per rank.
#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/report/sections.hpp"
#include "trireme/report/timeline.hpp"

namespace trireme::report {
namespace {

/// `spans` without `holes`; both disjoint and in order.
std::vector<Span> without(const std::vector<Span>& spans, const std::vector<Span>& holes) {
  std::vector<Span> out;
  for (Span span : spans) {
    for (const Span& hole : holes) {
      if (hole.end <= span.begin || hole.begin >= span.end) continue;
      if (hole.begin > span.begin) out.push_back({span.begin, hole.begin});
      span.begin = hole.end;
    }
    if (span.end > span.begin) out.push_back(span);
  }
  return out;
}

/// What a rank did in a traced step.
struct Overlap {
  std::vector<Span> communication;  // at least one call is on its way
  std::vector<Span> exposed;        // in which the rank waits for it
  double share_exposed = 0;         // of the step
};

Overlap overlap_of(const RankTrace& rank) {
  Overlap out;
  std::vector<Span> calls;
  for (const TracedCall& call : rank.calls) calls.push_back(call.span);
  out.communication = common(joined(std::move(calls)), {rank.step});
  out.exposed = common(rank.waits, {rank.step});
  out.share_exposed = rank.step.length() > 0 ? total(out.exposed) / rank.step.length() : 0;
  return out;
}

void add_bars(TimelineRow& row, const std::vector<Span>& spans, const char* colour, const char* what) {
  for (const Span& span : spans) row.bars.push_back({span, colour, "", text(what, ": ", human_seconds(span.length()))});
}

void add_rows(std::vector<TimelineRow>& rows, const RankTrace& rank, const Overlap& overlap) {
  TimelineRow compute{.label = text("rank ", rank.rank)}, communication{.label = "comm"};
  for (const TracedAction& action : rank.actions)
    add_bars(compute, without({action.span}, rank.waits),
             action.kind == schedule::ActionKind::F ? "forward" : "backward",
             action.kind == schedule::ActionKind::F ? "forward" : "backward");
  add_bars(compute, without({rank.update}, rank.waits), "optimizer", "update");
  add_bars(communication, without(overlap.communication, overlap.exposed), "hidden", "hidden");
  add_bars(communication, overlap.exposed, "exposed", "exposed");
  rows.push_back(std::move(compute));
  rows.push_back(std::move(communication));
}

std::string overlap_of_run(const TracedStep& traced, std::size_t index) {
  std::vector<TimelineRow> rows;
  HtmlTable table{.header = {"rank", "step", "communication", "exposed", "exposed share of the step",
                             "hidden share of communication"},
                  .rows = {},
                  .right = {false, true, true, true, true, true}};
  double seconds = 0, sum = 0;
  for (const RankTrace& rank : traced.ranks) {
    const Overlap overlap = overlap_of(rank);
    add_rows(rows, rank, overlap);
    seconds = std::max(seconds, rank.step.end);
    sum += overlap.share_exposed;
    const double all = total(overlap.communication),
                 hidden = all - total(common(overlap.communication, overlap.exposed));
    const std::string name = text("overlap.rank", rank.rank);
    table.rows.push_back(
        {text("rank ", rank.rank), human_seconds(rank.step.length()),
         figure_html(figure_name(index, name + ".communication"), all, human_seconds(all)),
         figure_html(figure_name(index, name + ".exposed_s"), total(overlap.exposed),
                     human_seconds(total(overlap.exposed))),
         figure_html(figure_name(index, name + ".exposed"), overlap.share_exposed, percent_text(overlap.share_exposed)),
         figure_html(figure_name(index, name + ".hidden"), all > 0 ? hidden / all : 0,
                     percent_text(all > 0 ? hidden / all : 0))});
  }
  const double mean = sum / static_cast<double>(std::max<std::size_t>(1, traced.ranks.size()));
  const std::string keys =
      text("<div class=\"legend\">", key_html("forward", "forward"), key_html("backward", "backward"),
           key_html("optimizer", "update"), key_html("hidden", "communication, hidden"),
           key_html("exposed", "communication, exposed"), "</div>");
  return captioned_html(
      keys + timeline_html(rows, seconds, 18) + table_html(table),
      text("Step ", traced.step,
           ". Upper row: the rank computes. Lower row: a call has been started, and the rank has not yet "
           "waited for its end; red while it does nothing but wait, also for its input from another pipeline stage. "
           "Mean over the ranks: ",
           figure_html(figure_name(index, "overlap.exposed"), mean, percent_text(mean)),
           " of the step exposed, the bubble included. By the host's clock: on a GPU, use a trace of the device."));
}

}  // namespace

std::string overlap_html(const Runs& runs) {
  std::string out;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    out += run_heading(runs, runs[i]);
    if (const TracedStep* traced = drawn_step(runs[i]))
      out += earlier_layout_html(runs[i], traced->step) + overlap_of_run(*traced, i);
    else
      out += no_trace_html(runs[i], "The overlap of communication and computation");
  }
  return out;
}

}  // namespace trireme::report
