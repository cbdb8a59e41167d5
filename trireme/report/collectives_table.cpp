// The communication calls of a traced step, by operation and group.
#include <algorithm>
#include <map>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/svg.hpp"
#include "trireme/report/call_bytes.hpp"
#include "trireme/report/sections.hpp"

namespace trireme::report {
namespace {

struct CallSum {
  int ranks = 0;  // of a group
  std::int64_t calls = 0;
  double bytes = 0, bus_bytes = 0, seconds = 0;  // seconds: of the calls with known bytes
  bool all_known = true;
};

/// By operation and by the name and size of the group: "tp", of two ranks.
using CallSums = std::map<std::pair<std::string, std::string>, CallSum>;

CallSums sums_of(const TracedStep& traced) {
  CallSums sums;
  for (const RankTrace& rank : traced.ranks)
    for (const TracedCall& call : rank.calls) {
      if (call.op.empty()) continue;
      const GroupText group = parse_group(call.group);
      CallSum& sum = sums[{call.op, text(group.name, group.size > 0 ? text(" (", group.size, " ranks)") : "")}];
      sum.ranks = group.size;
      ++sum.calls;
      const std::optional<double> bus = bus_bytes(call, group.size);
      if (!call.bytes || !bus) {
        sum.all_known = false;
        continue;
      }
      sum.bytes += static_cast<double>(*call.bytes);
      sum.bus_bytes += *bus;
      sum.seconds += call.span.length();
    }
  return sums;
}

std::string rate_text(double bytes_per_second) { return human_bytes(bytes_per_second) + "/s"; }

std::string collectives_of(const TracedStep& traced, std::size_t index) {
  HtmlTable table{
      .header = {"operation", "group", "calls, all ranks", "bytes of the tensors", "time in calls", "bus bandwidth"},
      .rows = {},
      .right = {false, false, true, true, true, true}};
  for (const auto& [key, sum] : sums_of(traced)) {
    const auto& [op, group] = key;
    const std::string name = text("call.", op, ".", group);
    const bool timed = sum.seconds > 0 && sum.bus_bytes > 0;
    const double rate = timed ? sum.bus_bytes / sum.seconds : 0;
    table.rows.push_back(
        {xml_escaped(op), xml_escaped(group),
         figure_html(figure_name(index, name + ".count"), static_cast<double>(sum.calls), thousands(sum.calls)),
         sum.all_known || sum.bytes > 0
             ? figure_html(figure_name(index, name + ".bytes"), sum.bytes, human_bytes(sum.bytes))
             : "&ndash;",
         human_seconds(sum.seconds),
         timed ? figure_html(figure_name(index, name + ".busbw"), rate, rate_text(rate)) : "&ndash;"});
  }
  return captioned_html(
      table_html(table),
      text("Calls of step ", traced.step,
           " of all ranks. Bus bandwidth as in NCCL's tests: bytes of the tensor (of the "
           "whole one, for all_gather) &times; 2(n&minus;1)/n for all_reduce, (n&minus;1)/n for all_gather, "
           "reduce_scatter and "
           "all_to_all, 1 for the others, over the time from the start of a call to the end of the wait for it. For "
           "calls that run in the background it is therefore a lower bound. &ndash;: the number of bytes differs per "
           "rank, or there is nothing to move."));
}

}  // namespace

std::string collectives_html(const Runs& runs) {
  std::string out;
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (const TracedStep* traced = drawn_step(runs[i])) out += run_heading(runs, runs[i]) + collectives_of(*traced, i);
  return out;
}

}  // namespace trireme::report
