#include "trireme/train/trace/step_trace.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/base/trace.hpp"
#include "trireme/comm/calls/flight_recorder.hpp"
#include "trireme/train/trace/device_memory.hpp"

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

/// Bytes of the tensor that a call names; nullopt if their number differs per rank, or there is none.
std::optional<std::int64_t> bytes_of_call(const CallRecord& call) {
  if (call.dtype < 0 || call.elements() < 0) return std::nullopt;
  return call.elements() * static_cast<std::int64_t>(c10::elementSize(static_cast<at::ScalarType>(call.dtype)));
}

void add_call(Tracer& tracer, int lane, const CallRecord& call, std::int64_t begin_ns, std::int64_t duration_ns) {
  const std::string what = call.what(), tag = call.tag.str();
  const auto seq = static_cast<std::int64_t>(call.seq);
  if (const std::optional<std::int64_t> bytes = bytes_of_call(call))
    tracer.add_span(lane, what, "comm", begin_ns, duration_ns,
                    {{"step", call.tag.step},
                     {"seq", seq},
                     {"tag", tag},
                     {"op", name(call.op)},
                     {"group", call.group},
                     {"bytes", *bytes},
                     {"peer", call.peer}});
  else
    tracer.add_span(
        lane, what, "comm", begin_ns, duration_ns,
        {{"step", call.tag.step}, {"seq", seq}, {"tag", tag}, {"op", name(call.op)}, {"group", call.group}});
}

void add_memory(Tracer& tracer, const MemorySample& sample, std::int64_t ns) {
  const auto of = [&](MemoryKind kind) { return sample.by_kind[static_cast<std::size_t>(kind)]; };
  tracer.add_counter("memory", ns, {{"allocated", sample.allocated}});
  if (std::ranges::all_of(sample.by_kind, [](std::int64_t bytes) { return bytes == 0; })) return;  // not counted
  tracer.add_counter("memory by purpose", ns,
                     {{"weights", of(MemoryKind::weights)},
                      {"gradients", of(MemoryKind::gradients)},
                      {"states", of(MemoryKind::master) + of(MemoryKind::states)},
                      {"activations", of(MemoryKind::activations)},
                      {"other", of(MemoryKind::other)}});
}

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
    add_call(tracer, lanes.take(call.group, call.started_ns, end), call, call.started_ns + shift,
             end - call.started_ns);
  }
  const int waiting = tracer.new_lane("waiting");
  for (const WaitSpan& wait : traced.waits) add(waiting, "wait", "wait", wait.begin_ns, wait.end_ns);
  if (traced.begin_ns > 0) add(tracer.new_lane("whole step"), "step", "whole step", traced.begin_ns, traced.end_ns);
  for (const MemorySample& sample : traced.memory) add_memory(tracer, sample, sample.ns + shift);
  const std::filesystem::path path = folder / text("step", traced.step);
  make_folder(path);
  tracer.write(path / text("rank", world.rank(), ".json.gz"));
}

}  // namespace trireme
