#include "trireme/train/step_trace.hpp"

#include <map>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/base/trace.hpp"
#include "trireme/comm/flight_recorder.hpp"

namespace trireme {

void write_step_trace(const std::filesystem::path& folder, const TracedStep& traced, const World& world,
                      const std::string& backend) {
  Tracer tracer({.rank = world.rank(), .world_size = world.size(), .backend = backend});
  tracer.enable();
  // Records use the steady clock, the trace the time since 1970.
  const std::int64_t shift = tracer.now_ns() - steady_ns();
  const int parts = tracer.new_lane("step");
  const auto add = [&](std::string_view name, std::int64_t begin_ns, std::int64_t end_ns) {
    tracer.add_span(parts, name, "step", begin_ns + shift, end_ns - begin_ns, {{"step", traced.step}});
  };
  for (const ActionSpan& span : traced.spans) add(str(span.action), span.begin_ns, span.end_ns);
  add("update", traced.update_ns, traced.end_ns);
  // Spans of a lane must nest, but calls of one group may overlap: each goes to the first free lane of its group.
  std::map<std::string, std::vector<std::pair<int, std::int64_t>>> lanes;  // by group: lane, busy until
  for (const CallRecord& call : traced.calls) {
    const std::int64_t end = call.finished_ns > 0 ? call.finished_ns : call.started_ns;
    auto& own = lanes[call.group];
    std::pair<int, std::int64_t>* lane = nullptr;
    for (auto& candidate : own)
      if (candidate.second <= call.started_ns) {
        lane = &candidate;
        break;
      }
    if (lane == nullptr) {
      own.emplace_back(tracer.new_lane(text(call.group, own.empty() ? "" : text(" ", own.size() + 1))), 0);
      lane = &own.back();
    }
    lane->second = end;
    tracer.add_span(lane->first, call.what(), "comm", call.started_ns + shift, end - call.started_ns,
                    {{"seq", static_cast<std::int64_t>(call.seq)}, {"tag", call.tag.str()}});
  }
  const std::filesystem::path path = folder / text("step", traced.step);
  make_folder(path);
  tracer.write(path / text("rank", world.rank(), ".json.gz"));
}

}  // namespace trireme
