#pragma once
// Tracer: spans and counters of a rank as a Chrome trace (ui.perfetto.dev, chrome://tracing, HTA).
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "trireme/base/field.hpp"

namespace trireme {

/// Nanoseconds since 1970.
using TraceClock = std::function<std::int64_t()>;

/// The wall-clock time of this call, advanced by the steady clock: it never jumps, and the traces of several hosts line
/// up as well as their clocks agree.
TraceClock steady_trace_clock();

struct TraceOptions {
  int rank = 0;
  int world_size = 1;
  std::string backend{};
  TraceClock clock = steady_trace_clock();
  std::size_t max_events = 1'000'000;  // later events are dropped and counted, which bounds memory
};

/// One event of the trace event format, on a lane: a thread, or a device stream.
struct TraceEvent {
  char phase;  // X span, C counter
  int lane = 0;
  std::int64_t start_ns = 0;
  std::int64_t duration_ns = 0;
  std::string name{};
  std::string category{};
  std::string args{};  // a JSON object, or empty
};

/// Off until enable(); thread-safe. Names are copied, and only while it is on.
class Tracer {
 public:
  using Args = std::initializer_list<LogField>;

  explicit Tracer(TraceOptions options);

  void enable() { enabled_.store(true, std::memory_order_relaxed); }
  void disable() { enabled_.store(false, std::memory_order_relaxed); }
  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

  /// A value over time: memory in use, tokens in flight.
  void counter(std::string_view name, double value);

  /// Names the calling thread's lane. Also takes effect while tracing is off.
  void name_thread(std::string_view name);

  /// A new lane that belongs to no thread, such as a CUDA stream: see add_span.
  int new_lane(std::string_view name);

  /// A span that was timed externally, in nanoseconds of the tracer's clock. Spans of one lane must nest.
  void add_span(int lane, std::string_view name, std::string_view category, std::int64_t start_ns,
                std::int64_t duration_ns, Args args = {});

  /// The values of a counter at a time of the tracer's clock, one per name: {{"weights", 1024}, {"gradients", 512}}.
  void add_counter(std::string_view name, std::int64_t ns, Args values);

  std::int64_t now_ns() const { return options_.clock(); }
  std::size_t dropped() const;

  /// Drops the events, keeps the lane names.
  void clear();

  /// Compressed if `path` ends in .gz. The events are kept. Spans that are still open are not written.
  void write(const std::filesystem::path& path) const;

 private:
  friend class TraceSpan;

  void add_from_this_thread(TraceEvent event);
  int lane_of_this_thread();  // these two require the lock to be held
  void keep(TraceEvent event);
  std::string json() const;

  const TraceOptions options_;
  const std::int64_t base_ns_;
  std::atomic<bool> enabled_{false};

  mutable std::mutex mutex_;  // guards all below
  std::vector<TraceEvent> events_;
  std::map<std::thread::id, int> lanes_;
  std::vector<std::string> lane_names_;  // by lane; empty: unnamed
  std::size_t dropped_ = 0;
};

/// Measures its scope: `TraceSpan span(tracer, "forward", "compute", {{"microbatch", 3}});`. While the tracer is off it
/// costs a load and a branch: no allocation, no clock read.
class [[nodiscard]] TraceSpan {
 public:
  TraceSpan(Tracer& tracer, std::string_view name, std::string_view category, Tracer::Args args = {})
      : tracer_(tracer) {
    if (tracer.enabled()) [[unlikely]]
      begin(name, category, args);
  }
  ~TraceSpan() {
    if (event_) [[unlikely]]
      end();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  void begin(std::string_view name, std::string_view category, Tracer::Args args);
  void end();

  Tracer& tracer_;
  std::optional<TraceEvent> event_{};
};

}  // namespace trireme
