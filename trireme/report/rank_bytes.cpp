// Who sends how much to whom in a traced step.
#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/svg.hpp"
#include "trireme/report/call_bytes.hpp"
#include "trireme/report/sections.hpp"

namespace trireme::report {
namespace {

constexpr std::size_t kMostShown = 32;

struct BytesMatrix {
  std::vector<std::vector<double>> bytes;  // from, to
  std::int64_t unknown_calls = 0;          // whose bytes or ranks are not known
};

/// Collectives: what a rank sends is divided evenly among the others of the group.
BytesMatrix bytes_of(const TracedStep& traced, std::size_t ranks) {
  BytesMatrix matrix{.bytes = std::vector(ranks, std::vector<double>(ranks))};
  for (const RankTrace& trace : traced.ranks)
    for (const TracedCall& call : trace.calls) {
      const GroupText group = parse_group(call.group);
      const auto own = static_cast<std::size_t>(trace.rank);
      if (group.size == 1 || call.op == "recv" || call.op == "replay" || call.op == "barrier" ||
          call.op == "end of the step")
        continue;
      const auto me = std::ranges::find(group.ranks, trace.rank);
      const bool is_root = call.peer >= 0 && me != group.ranks.end() && me - group.ranks.begin() == call.peer;
      const std::optional<double> sent = sent_bytes(call, group.size, is_root);
      if (!sent || me == group.ranks.end() || own >= ranks) {
        ++matrix.unknown_calls;
        continue;
      }
      for (std::size_t member = 0; member < group.ranks.size(); ++member) {
        const auto to = static_cast<std::size_t>(group.ranks[member]);
        if (to == own || to >= ranks) continue;
        if (call.op == "send" && static_cast<int>(member) != call.peer) continue;
        matrix.bytes[own][to] += call.op == "send" ? *sent : *sent / (group.size - 1);
      }
    }
  return matrix;
}

std::string matrix_html(const TracedStep& traced, const BytesMatrix& matrix, std::size_t index) {
  double most = 0;
  for (const auto& row : matrix.bytes)
    for (const double bytes : row) most = std::max(most, bytes);
  HtmlTable table{.header = {"from \\ to"}, .rows = {}, .right = {}, .css = "matrix"};
  for (std::size_t to = 0; to < matrix.bytes.size(); ++to) table.header.push_back(text(to));
  for (std::size_t from = 0; from < matrix.bytes.size(); ++from) {
    std::vector<std::string> row = {text("<b>", from, "</b>")};
    for (std::size_t to = 0; to < matrix.bytes.size(); ++to) {
      const double bytes = matrix.bytes[from][to];
      row.push_back(
          bytes > 0 ? text("<span class=\"cell\" style=\"--v:", svg_number(most > 0 ? bytes / most : 0), "\">",
                           figure_html(figure_name(index, text("bytes.", from, ".", to)), bytes, human_bytes(bytes)),
                           "</span>")
                    : "<span class=\"none\">&middot;</span>");
    }
    table.rows.push_back(std::move(row));
  }
  return captioned_html(table_html(table),
                        text("Bytes that ranks send to each other in step ", traced.step,
                             ". What a rank sends in a collective is divided evenly among the others of its group.",
                             matrix.unknown_calls > 0 ? text(" Without ", matrix.unknown_calls,
                                                             " calls whose bytes or ranks the trace does not have.")
                                                      : ""));
}

}  // namespace

std::string rank_bytes_html(const Runs& runs) {
  std::string out;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    out += run_heading(runs, runs[i]);
    const TracedStep* traced = drawn_step(runs[i]);
    if (traced == nullptr) {
      out += no_trace_html(runs[i], "Who sends how much to whom");
      continue;
    }
    out += earlier_layout_html(runs[i], traced->step);
    const Segment* segment = runs[i].segment_of(traced->step);
    const int known = segment != nullptr ? segment->ranks : runs[i].world_size();
    const auto ranks = static_cast<std::size_t>(std::max(known, traced->ranks.back().rank + 1));
    if (ranks > kMostShown)
      out += missing_html("Too many ranks to draw.", text("The matrix is shown for up to ", kMostShown, " ranks."));
    else if (ranks < 2)
      out += missing_html("Nothing to send.", "The run has one rank.");
    else
      out += matrix_html(*traced, bytes_of(*traced, ranks), i);
  }
  return out;
}

}  // namespace trireme::report
