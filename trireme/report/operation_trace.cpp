#include "trireme/report/operation_trace.hpp"

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/report/trace_file.hpp"
#include "trireme/report/trace_text.hpp"

namespace trireme::report {
namespace {

using Events = nlohmann::json;

struct TimedEvent {
  const std::string* name;
  Span span;
  double length;
};

constexpr double kMicrosecond = 1e-6;
constexpr std::size_t kMaxOperationsText = 256 << 20;  // takes ten times as much memory

/// Times are in microseconds, as in the file: in seconds since 1970 they would lose the last digits.
double number_in(const Events& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number() ? found->get<double>() : 0;
}

/// Without a copy: that of a deeply nested value would overflow the stack.
const std::string* word_in(const Events& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_string() ? found->get_ptr<const std::string*>() : nullptr;
}

/// The time of each event without those inside it, by name. Events of one thread nest.
void add_own_times(std::vector<TimedEvent>& events, std::map<std::string, OperationTime>& out) {
  std::ranges::sort(events, [](const TimedEvent& a, const TimedEvent& b) {
    return a.span.begin != b.span.begin ? a.span.begin < b.span.begin : a.span.end > b.span.end;
  });
  std::vector<const TimedEvent*> open;
  for (const TimedEvent& event : events) {
    while (!open.empty() && open.back()->span.end <= event.span.begin) open.pop_back();
    if (!open.empty()) out[*open.back()->name].seconds -= event.length * kMicrosecond;
    OperationTime& own = out[*event.name];
    ++own.count;
    own.seconds += event.length * kMicrosecond;
    open.push_back(&event);
  }
}

std::vector<OperationTime> longest_first(std::map<std::string, OperationTime>&& times) {
  std::vector<OperationTime> out;
  for (auto& [name, time] : times) {
    time.name = name;
    out.push_back(std::move(time));
  }
  std::ranges::stable_sort(out, std::ranges::greater{}, &OperationTime::seconds);
  return out;
}

}  // namespace

OperationTrace read_operation_trace(const std::filesystem::path& path) {
  const Events json = Events::parse(trace_text(path, kMaxOperationsText), nullptr, /*allow_exceptions=*/false);
  const auto events = json.is_object() ? json.find("traceEvents") : json.end();
  require<DataError>(events != json.end() && events->is_array(), path.string(),
                     ": not a trace\n  fix: remove it, and profile again (profiler.operations)");
  std::map<double, std::vector<TimedEvent>> threads;
  std::map<std::string, OperationTime> kernels;
  std::vector<Span> busy;
  Span all{1e300, -1e300};
  for (const Events& event : *events) {
    if (!event.is_object()) continue;
    const std::string *phase = word_in(event, "ph"), *name = word_in(event, "name"), *category = word_in(event, "cat");
    if (phase == nullptr || *phase != "X" || name == nullptr || category == nullptr) continue;
    const bool on_gpu = *category == "kernel" || *category == "gpu_memcpy" || *category == "gpu_memset";
    if (!on_gpu && *category != "cpu_op") continue;
    const double begin = number_in(event, "ts"), length = std::max(0.0, number_in(event, "dur"));
    const Span span{begin, begin + length};
    all = {std::min(all.begin, span.begin), std::max(all.end, span.end)};
    if (on_gpu) {
      OperationTime& kernel = kernels[*name];
      ++kernel.count;
      kernel.seconds += length * kMicrosecond;
      busy.push_back(span);
    } else {
      threads[number_in(event, "tid")].push_back({name, span, length});
    }
  }
  std::map<std::string, OperationTime> host;
  for (auto& [thread, own] : threads) add_own_times(own, host);
  return {.seconds = std::max(0.0, all.length()) * kMicrosecond,
          .host = longest_first(std::move(host)),
          .kernels = longest_first(std::move(kernels)),
          .gpu_busy_seconds = total(joined(std::move(busy))) * kMicrosecond};
}

}  // namespace trireme::report
