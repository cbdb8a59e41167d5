#include "trireme/base/trace.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <type_traits>
#include <utility>
#include <variant>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/base/gzip.hpp"
#include "trireme/base/json_text.hpp"
#include "trireme/base/stopwatch.hpp"

namespace trireme {
namespace {

/// Times in the file are relative to the start of their quarter of a year, as Kineto's are: microseconds since 1970
/// would leave no bits of a double for the nanoseconds. All ranks need the same base, or their traces would not line
/// up.
std::int64_t base_of(std::int64_t now_ns) {
  constexpr std::int64_t kQuarter = std::chrono::nanoseconds(std::chrono::hours(24 * 91)).count();
  return now_ns / kQuarter * kQuarter;
}

std::string microseconds(std::int64_t ns) {
  const std::int64_t size = ns < 0 ? -ns : ns;
  const std::string fraction = std::to_string(size % 1000);
  std::string out = ns < 0 ? "-" : "";
  return out.append(std::to_string(size / 1000)).append(".").append(3 - fraction.size(), '0').append(fraction);
}

std::string json_value(const LogField::Value& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, bool>) {
          return v ? "true" : "false";
        } else if constexpr (std::is_same_v<T, std::string_view>) {
          return json_string(v);
        } else {
          return json_number(v);
        }
      },
      value);
}

std::string json_object(Tracer::Args args) {
  std::string out;
  for (const auto& [key, value] : args) {
    out.append(out.empty() ? "{" : ",").append(json_string(key)).append(":").append(json_value(value));
  }
  return out.empty() ? out : out.append("}");
}

/// The name of a rank or a lane, or the sort index of a rank.
std::string metadata_json(std::string_view what, int rank, int lane, Tracer::Args args) {
  std::string out = "{\"ph\":\"M\",\"name\":";
  out.append(json_string(what)).append(",\"pid\":").append(json_number(rank));
  out.append(",\"tid\":").append(json_number(lane));
  return out.append(",\"args\":").append(json_object(args)).append("}");
}

std::string event_json(const TraceEvent& event, int rank, std::int64_t base_ns) {
  std::string out = "{\"ph\":\"";
  out.append(1, event.phase).append("\",\"name\":").append(json_string(event.name));
  if (!event.category.empty()) out.append(",\"cat\":").append(json_string(event.category));
  out.append(",\"pid\":").append(json_number(rank)).append(",\"tid\":").append(json_number(event.lane));
  out.append(",\"ts\":").append(microseconds(event.start_ns - base_ns));
  if (event.phase == 'X') out.append(",\"dur\":").append(microseconds(event.duration_ns));
  if (!event.args.empty()) out.append(",\"args\":").append(event.args);
  return out.append("}");
}

}  // namespace

TraceClock steady_trace_clock() {
  using std::chrono::nanoseconds;
  const std::int64_t since_1970 = nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  return [offset = since_1970 - steady_ns()] { return steady_ns() + offset; };
}

Tracer::Tracer(TraceOptions options) : options_(std::move(options)), base_ns_(base_of(now_ns())) {}

void Tracer::counter(std::string_view name, double value) {
  if (!enabled()) return;
  add_from_this_thread(
      {.phase = 'C', .start_ns = now_ns(), .name = std::string(name), .args = json_object({{"value", value}})});
}

void Tracer::name_thread(std::string_view name) {
  const std::lock_guard lock(mutex_);
  lane_names_[static_cast<std::size_t>(lane_of_this_thread())] = name;
}

int Tracer::new_lane(std::string_view name) {
  const std::lock_guard lock(mutex_);
  lane_names_.emplace_back(name);
  return static_cast<int>(lane_names_.size()) - 1;
}

void Tracer::add_span(int lane, std::string_view name, std::string_view category, std::int64_t start_ns,
                      std::int64_t duration_ns, Args args) {
  if (!enabled()) return;
  TraceEvent event{.phase = 'X',
                   .lane = lane,
                   .start_ns = start_ns,
                   .duration_ns = duration_ns,
                   .name = std::string(name),
                   .category = std::string(category),
                   .args = json_object(args)};
  const std::lock_guard lock(mutex_);
  keep(std::move(event));
}

void Tracer::add_counter(std::string_view name, std::int64_t ns, Args values) {
  if (!enabled()) return;
  const std::lock_guard lock(mutex_);
  keep({.phase = 'C', .start_ns = ns, .name = std::string(name), .args = json_object(values)});
}

std::size_t Tracer::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

void Tracer::clear() {
  const std::lock_guard lock(mutex_);
  events_.clear();
  dropped_ = 0;
}

void Tracer::write(const std::filesystem::path& path) const {
  const std::string trace = json();
  replace_file(path, path.extension() == ".gz" ? gzip(trace) : trace);
}

void Tracer::add_from_this_thread(TraceEvent event) {
  const std::lock_guard lock(mutex_);
  event.lane = lane_of_this_thread();
  keep(std::move(event));
}

int Tracer::lane_of_this_thread() {
  const auto [entry, is_new] = lanes_.try_emplace(std::this_thread::get_id(), static_cast<int>(lane_names_.size()));
  if (is_new) lane_names_.emplace_back();
  return entry->second;
}

void Tracer::keep(TraceEvent event) {
  if (events_.size() < options_.max_events) {
    events_.push_back(std::move(event));
  } else {
    ++dropped_;
  }
}

std::string Tracer::json() const {
  const std::lock_guard lock(mutex_);
  // Spans are stored in the order they ended, inner ones first. Viewers expect the outer one first if both start at the
  // same time.
  std::vector<const TraceEvent*> in_order;
  in_order.reserve(events_.size());
  for (const TraceEvent& event : events_) in_order.push_back(&event);
  std::stable_sort(in_order.begin(), in_order.end(), [](const TraceEvent* a, const TraceEvent* b) {
    return std::pair(a->start_ns, b->duration_ns) < std::pair(b->start_ns, a->duration_ns);
  });

  const int rank = options_.rank;
  const std::string who =
      json_object({{"backend", options_.backend}, {"rank", rank}, {"world_size", options_.world_size}});
  std::string out = "{\"distributedInfo\":";
  out.append(who).append(",\n\"baseTimeNanoseconds\":").append(json_number(base_ns_));
  out.append(",\n\"droppedEvents\":").append(json_number(dropped_)).append(",\n\"traceEvents\":[\n");
  out.append(metadata_json("process_name", rank, 0, {{"name", text("rank ", rank)}})).append(",\n");
  out.append(metadata_json("process_sort_index", rank, 0, {{"sort_index", rank}}));
  for (std::size_t lane = 0; lane < lane_names_.size(); ++lane) {
    if (lane_names_[lane].empty()) continue;
    out.append(",\n").append(metadata_json("thread_name", rank, static_cast<int>(lane), {{"name", lane_names_[lane]}}));
  }
  for (const TraceEvent* event : in_order) out.append(",\n").append(event_json(*event, rank, base_ns_));
  return out.append("\n]}\n");
}

void TraceSpan::begin(std::string_view name, std::string_view category, Tracer::Args args) {
  event_.emplace(TraceEvent{
      .phase = 'X', .name = std::string(name), .category = std::string(category), .args = json_object(args)});
  event_->start_ns = tracer_.now_ns();  // last, so that the copies above are not measured
}

void TraceSpan::end() {
  event_->duration_ns = tracer_.now_ns() - event_->start_ns;
  tracer_.add_from_this_thread(std::move(*event_));
}

}  // namespace trireme
