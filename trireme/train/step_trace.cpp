#include "trireme/train/step_trace.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/base/trace.hpp"
#include "trireme/comm/flight_recorder.hpp"

namespace trireme {
namespace {

std::string_view kind_name(schedule::ActionKind kind) {
  switch (kind) {
    case schedule::ActionKind::F: return "forward";
    case schedule::ActionKind::B: return "backward";
    case schedule::ActionKind::I: return "input gradients";
    case schedule::ActionKind::W: break;
  }
  return "weight gradients";
}

struct UnitSpan {
  std::size_t unit = 0;
  const char* phase = "";
  std::int64_t begin_ns = 0, end_ns = 0;
};

/// In backward a unit ends where the next one begins; the last, where the backward of the microbatch ends.
std::vector<UnitSpan> unit_spans(const TracedStep& traced) {
  std::vector<UnitSpan> spans;
  std::optional<UnitSpan> open;
  const auto close = [&](std::int64_t ns) {
    if (!open) return;
    for (const ActionSpan& span : traced.spans)
      if (span.begin_ns <= open->begin_ns && open->begin_ns <= span.end_ns) ns = std::min(ns, span.end_ns);
    open->end_ns = ns;
    spans.push_back(*std::exchange(open, std::nullopt));
  };
  for (const UnitEvent& event : traced.units) {
    close(event.ns);
    if (event.kind != UnitEvent::Kind::forward_end)
      open = {event.unit, event.kind == UnitEvent::Kind::forward_begin ? "forward" : "backward", event.ns};
  }
  close(traced.update_ns);
  return spans;
}

/// Spans of a lane must nest, but calls of one group may overlap: each goes to the first free lane of its group.
class CallLanes {
 public:
  explicit CallLanes(Tracer& tracer) : tracer_(tracer) {}

  int take(const std::string& group, std::int64_t begin_ns, std::int64_t end_ns) {
    std::vector<Lane>& own = lanes_[group];
    auto lane = std::ranges::find_if(own, [&](const Lane& each) { return each.busy_until_ns <= begin_ns; });
    if (lane == own.end())
      lane = own.insert(own.end(), {tracer_.new_lane(text(group, own.empty() ? "" : text(" ", own.size() + 1)))});
    lane->busy_until_ns = end_ns;
    return lane->number;
  }

 private:
  struct Lane {
    int number = 0;
    std::int64_t busy_until_ns = 0;
  };
  Tracer& tracer_;
  std::map<std::string, std::vector<Lane>> lanes_;  // by group
};

}  // namespace

std::string span_name(const schedule::Action& action) {
  return text(kind_name(action.op), " microbatch ", action.microbatch,
              action.chunk > 0 ? text(" chunk ", action.chunk) : "");
}

void write_step_trace(const std::filesystem::path& folder, const TracedStep& traced, const World& world,
                      const std::string& backend) {
  Tracer tracer({.rank = world.rank(), .world_size = world.size(), .backend = backend});
  tracer.enable();
  // Records use the steady clock, the trace the time since 1970.
  const std::int64_t shift = tracer.now_ns() - steady_ns();
  const int phases = tracer.new_lane("step"), layers = tracer.new_lane("layers");
  const auto add = [&](int lane, std::string_view name, std::string_view category, std::int64_t begin_ns,
                       std::int64_t end_ns) {
    tracer.add_span(lane, name, category, begin_ns + shift, end_ns - begin_ns, {{"step", traced.step}});
  };
  for (const ActionSpan& span : traced.spans) add(phases, span_name(span.action), "step", span.begin_ns, span.end_ns);
  add(phases, "update", "step", traced.update_ns, traced.end_ns);
  for (const UnitSpan& span : unit_spans(traced))
    add(layers, traced.unit_names[span.unit], span.phase, span.begin_ns, span.end_ns);
  CallLanes lanes(tracer);
  for (const CallRecord& call : traced.calls) {
    const std::int64_t end = call.finished_ns > 0 ? call.finished_ns : call.started_ns;
    tracer.add_span(lanes.take(call.group, call.started_ns, end), call.what(), "comm", call.started_ns + shift,
                    end - call.started_ns,
                    {{"step", call.tag.step}, {"seq", static_cast<std::int64_t>(call.seq)}, {"tag", call.tag.str()}});
  }
  const std::filesystem::path path = folder / text("step", traced.step);
  make_folder(path);
  tracer.write(path / text("rank", world.rank(), ".json.gz"));
}

}  // namespace trireme
