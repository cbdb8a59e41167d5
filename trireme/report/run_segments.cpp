#include "trireme/report/run_segments.hpp"

#include <algorithm>
#include <sstream>

#include "trireme/base/error.hpp"
#include "trireme/layout/grid.hpp"

namespace trireme::report {
namespace {

constexpr const char* kLayoutKeys[] = {"ranks", "layout", "zero", "ep", "expert_tp"};

std::vector<const Event*> starts_in(const std::vector<Event>& events) {
  std::vector<const Event*> starts;
  for (const Event& event : events)
    if (event.name == "start") starts.push_back(&event);
  return starts;
}

bool is_one_layout(const Event& a, const Event& b) {
  return std::ranges::all_of(kLayoutKeys, [&](const char* key) { return a.word(key) == b.word(key); });
}

/// "pp=1 dp=2 cp=1 tp=2" -> "dp 2 tp 2"
std::string layout_text(const Event& start) {
  std::string out;
  const auto add = [&](const std::string& name, const std::string& degree, const char* usual) {
    if (degree.empty() || degree == usual) return;
    out.append(out.empty() ? "" : " ").append(name).append(" ").append(degree);
  };
  std::istringstream words(start.word("layout"));
  for (std::string word; words >> word;)
    if (const std::size_t at = word.find('='); at != std::string::npos)
      add(word.substr(0, at), word.substr(at + 1), "1");
  add("ep", start.word("ep"), "1");
  add("zero", start.word("zero"), "1");  // the default
  if (!out.empty()) return out;
  return start.word("ranks") == "1" ? "1 rank" : start.word("layout");
}

Segment segment_of(const Event& start, std::int64_t first) {
  Segment segment{.first = first, .layout = layout_text(start), .starts = {first}};
  if (const auto ranks = start.whole("ranks"); ranks && *ranks >= 1 && *ranks <= Grid::kMaxRanks)
    segment.ranks = static_cast<int>(*ranks);
  segment.predicted_bytes = start.number("predicted_bytes");
  return segment;
}

}  // namespace

std::vector<Segment> segments_of(const std::vector<Event>& events, const Columns& metrics) {
  const std::int64_t first_row = metrics.rows() > 0 ? metrics.steps.front() : 1;
  std::vector<Segment> segments;
  const Event* before = nullptr;
  for (const Event* start : starts_in(events)) {
    const std::int64_t first = start->whole("step").value_or(first_row);
    while (!segments.empty() && segments.back().first >= first) {
      segments.pop_back();
      before = nullptr;  // it is not known any more which start it was
    }
    if (!segments.empty() && before != nullptr && is_one_layout(*before, *start)) {
      std::erase_if(segments.back().starts, [&](std::int64_t step) { return step >= first; });
      segments.back().starts.push_back(first);
    } else {
      segments.push_back(segment_of(*start, first));
    }
    before = start;
  }
  // Steps from before the first start that is known.
  if (segments.empty() || (metrics.rows() > 0 && segments.front().first > first_row))
    segments.insert(segments.begin(), Segment{.first = first_row, .layout = "layout not known", .starts = {first_row}});
  for (std::size_t i = 0; i + 1 < segments.size(); ++i) segments[i].last = segments[i + 1].first - 1;
  segments.back().last = std::max(segments.back().first - 1, metrics.rows() > 0 ? metrics.steps.back() : 0);
  return segments;
}

double began_on_its_layout(const std::vector<Event>& events, std::int64_t step) {
  const std::vector<const Event*> starts = starts_in(events);
  for (std::size_t i = starts.size(); i-- > 0;) {
    if (starts[i]->whole("step").value_or(1) > step) continue;
    while (i > 0 && is_one_layout(*starts[i - 1], *starts[i])) --i;
    return starts[i]->time;
  }
  return 0;
}

std::string steps_text(const Segment& segment) {
  if (segment.last < segment.first) return text("from step ", segment.first);
  if (segment.last == segment.first) return text("step ", segment.first);
  return text("steps ", segment.first, "–", segment.last);
}

std::string segments_text(const RunFiles& run, std::size_t most) {
  const std::vector<Segment>& all = run.segments;
  const std::size_t left_out = all.size() > most ? all.size() - most : 0;
  std::string out = left_out > 0 ? text(left_out, " earlier; ") : "";
  for (std::size_t i = left_out; i < all.size(); ++i)
    out += text(i > left_out ? "; " : "", steps_text(all[i]), ": ", all[i].layout);
  return out;
}

std::vector<std::size_t> measured_rows(const RunFiles& run) {
  const std::vector<std::int64_t>& steps = run.metrics.steps;
  std::vector<std::size_t> all, later;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!run.segments.empty() && steps[i] < run.segments.back().first) continue;
    all.push_back(i);
    const bool is_first = run.segments.empty() ? i == 0 : run.segments.back().is_start(steps[i]);
    if (!is_first) later.push_back(i);
  }
  return later.empty() ? all : later;
}

}  // namespace trireme::report
