#include "trireme/report/trace_file.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/report/trace_text.hpp"

namespace trireme::report {
namespace {

using Json = nlohmann::json;

/// After `prefix`; moves `words` behind the number.
std::optional<int> number_after(std::string_view& words, std::string_view prefix) {
  if (!words.starts_with(prefix)) return std::nullopt;
  int value = 0;
  const char* const end = words.data() + words.size();
  const auto [rest, error] = std::from_chars(words.data() + prefix.size(), end, value);
  if (error != std::errc()) return std::nullopt;
  words = {rest, static_cast<std::size_t>(end - rest)};
  return value;
}

/// "backward microbatch 3 chunk 1"; nullopt: not an action.
std::optional<TracedAction> action_of(std::string_view name) {
  using schedule::ActionKind;
  constexpr std::pair<std::string_view, ActionKind> kKinds[] = {{"forward", ActionKind::F},
                                                                {"backward", ActionKind::B},
                                                                {"input gradients", ActionKind::I},
                                                                {"weight gradients", ActionKind::W}};
  for (const auto& [word, kind] : kKinds) {
    if (!name.starts_with(word)) continue;
    std::string_view rest = name.substr(word.size());
    const std::optional<int> microbatch = number_after(rest, " microbatch ");
    if (!microbatch) return std::nullopt;
    const std::optional<int> chunk = number_after(rest, " chunk ");
    return TracedAction{.kind = kind, .microbatch = *microbatch, .chunk = chunk.value_or(0), .span = {}};
  }
  return std::nullopt;
}

double number_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

int small_number(const Json& object, const char* key) {
  return static_cast<int>(std::clamp(number_of(object, key), -1.0, 1e9));
}

std::string word_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

TracedCall call_of(const Json& args, const std::string& name, const Span& span) {
  TracedCall call{.op = word_of(args, "op"), .group = word_of(args, "group"), .what = name, .bytes = {}, .span = span};
  if (const auto bytes = args.find("bytes"); bytes != args.end() && bytes->is_number_integer() && *bytes >= 0)
    call.bytes = bytes->get<std::int64_t>();
  if (args.contains("peer")) call.peer = small_number(args, "peer");
  return call;
}

/// Both counters of a moment have the same time.
void add_counter(std::map<double, TracedMemory>& memory, const std::string& name, double time, const Json& args) {
  if (name != "memory" && name != "memory by purpose") return;
  TracedMemory& at = memory[time];
  at.time = time;
  if (name == "memory") {
    at.allocated = number_of(args, "allocated");
    return;
  }
  at.by_purpose = true;
  at.weights = number_of(args, "weights");
  at.gradients = number_of(args, "gradients");
  at.states = number_of(args, "states");
  at.activations = number_of(args, "activations");
  at.other = number_of(args, "other");
}

void add_event(RankTrace& trace, std::map<double, TracedMemory>& memory, const Json& event) {
  const std::string phase = word_of(event, "ph"), name = word_of(event, "name"), category = word_of(event, "cat");
  // Whole nanoseconds: differences of them are exact. In seconds since the base of the file they would not be.
  const double begin = std::round(number_of(event, "ts") * 1e3);
  const Span span{begin, begin + std::round(std::max(0.0, number_of(event, "dur")) * 1e3)};
  static const Json kNone = Json::object();
  const auto args = event.find("args");
  const Json& values = args != event.end() && args->is_object() ? *args : kNone;
  if (phase == "C") return add_counter(memory, name, begin, values);
  if (phase != "X") return;
  if (category == "comm") {
    trace.calls.push_back(call_of(values, name, span));
  } else if (category == "wait") {
    trace.waits.push_back(span);
  } else if (category == "forward" || category == "backward") {
    trace.layers.push_back({name, category == "backward", span});
  } else if (category == "whole step") {
    trace.step = span;
  } else if (category == "step" && name == "update") {
    trace.update = span;
  } else if (category == "step") {
    if (std::optional<TracedAction> action = action_of(name)) {
      action->span = span;
      trace.actions.push_back(*action);
    }
  }
}

}  // namespace

RankTrace read_trace(const std::filesystem::path& path) {
  const Json json = Json::parse(trace_text(path), nullptr, /*allow_exceptions=*/false);
  const bool is_trace = json.is_object() && json.contains("traceEvents") && json["traceEvents"].is_array();
  require<DataError>(is_trace, path.string(),
                     ": not a trace\n  fix: remove it, and trace the step again (profiler.steps)");
  RankTrace trace;
  if (const auto who = json.find("distributedInfo"); who != json.end() && who->is_object()) {
    trace.rank = small_number(*who, "rank");
    trace.world_size = std::max(0, small_number(*who, "world_size"));
  }
  std::map<double, TracedMemory> memory;
  for (const Json& event : json["traceEvents"])
    if (event.is_object()) add_event(trace, memory, event);
  for (auto& [time, sample] : memory) trace.memory.push_back(sample);
  std::ranges::sort(trace.actions, {}, [](const TracedAction& a) { return a.span.begin; });
  trace.waits = joined(std::move(trace.waits));
  if (trace.step.length() <= 0 && !trace.actions.empty())  // of a program that did not write it
    trace.step = {trace.actions.front().span.begin, std::max(trace.update.end, trace.actions.back().span.end)};
  if (json.contains("baseTimeNanoseconds"))
    trace.began = (number_of(json, "baseTimeNanoseconds") + trace.step.begin) * 1e-9;
  return trace;
}

double align(std::vector<RankTrace>& ranks) {
  double first = std::numeric_limits<double>::infinity();
  for (const RankTrace& rank : ranks) first = std::min(first, rank.step.begin);
  const auto seconds = [first](double ns) { return (ns - first) * 1e-9; };
  const auto shift = [&](Span& span) { span = {seconds(span.begin), seconds(span.end)}; };
  for (RankTrace& rank : ranks) {
    shift(rank.step);
    shift(rank.update);
    for (TracedAction& action : rank.actions) shift(action.span);
    for (TracedLayer& layer : rank.layers) shift(layer.span);
    for (TracedCall& call : rank.calls) shift(call.span);
    for (Span& wait : rank.waits) shift(wait);
    for (TracedMemory& sample : rank.memory) sample.time = seconds(sample.time);
  }
  return first * 1e-9;
}

std::vector<Span> joined(std::vector<Span> spans) {
  std::ranges::sort(spans, {}, &Span::begin);
  std::vector<Span> out;
  for (const Span& span : spans) {
    if (!out.empty() && span.begin <= out.back().end)
      out.back().end = std::max(out.back().end, span.end);
    else
      out.push_back(span);
  }
  return out;
}

double total(const std::vector<Span>& spans) {
  double sum = 0;
  for (const Span& span : spans) sum += span.length();
  return sum;
}

std::vector<Span> common(const std::vector<Span>& a, const std::vector<Span>& b) {
  std::vector<Span> out;
  for (std::size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    const Span both{std::max(a[i].begin, b[k].begin), std::min(a[i].end, b[k].end)};
    if (both.end > both.begin) out.push_back(both);
    a[i].end < b[k].end ? ++i : ++k;
  }
  return out;
}

GroupText parse_group(const std::string& text) {
  GroupText group;
  const std::size_t open = text.find('{');
  group.name = text.substr(0, open);
  if (open == std::string::npos || !text.ends_with('}')) return group;  // cut off: its ranks are not known
  std::string_view rest = std::string_view(text).substr(open);
  std::vector<int> ranks;
  for (std::string_view before = "{"; std::optional<int> rank = number_after(rest, before); before = ",")
    ranks.push_back(*rank);
  if (rest == "}") {
    group.size = static_cast<int>(ranks.size());
    group.ranks = std::move(ranks);
  } else if (const std::size_t colon = rest.find(": "); colon != std::string_view::npos) {
    rest.remove_prefix(colon);
    group.size = number_after(rest, ": ").value_or(0);
  }
  return group;
}

}  // namespace trireme::report
