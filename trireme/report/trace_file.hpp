#pragma once
// trace/stepN/rankR.json.gz, as train/trace/step_trace.cpp writes it.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/schedule/action.hpp"

namespace trireme::report {

/// Seconds since the earliest event of all ranks of the step (see aligned()).
struct Span {
  double begin = 0, end = 0;
  double length() const { return end - begin; }
};

struct TracedAction {
  schedule::ActionKind kind = schedule::ActionKind::F;
  int microbatch = 0, chunk = 0;  // as in schedule::Action
  Span span;
};

/// Of the model: "embedding", "layer3".
struct TracedLayer {
  std::string name;
  bool backward = false;
  Span span;
};

struct TracedCall {
  std::string op, group, what;  // "all_reduce", "tp{0,1}", "all_reduce sum f32[8]"
  std::optional<std::int64_t> bytes;
  int peer = -1;  // in the group
  Span span;
};

/// Bytes of tensors at a time.
struct TracedMemory {
  double time = 0;
  double allocated = 0;
  bool by_purpose = false;  // whether the others were counted
  double weights = 0, gradients = 0, states = 0, activations = 0, other = 0;
};

struct RankTrace {
  int rank = 0;
  int world_size = 0;  // 0: not known
  double began = 0;    // when the step did, in seconds since 1970; 0: not known
  Span step, update;
  std::vector<TracedAction> actions;
  std::vector<TracedLayer> layers;
  std::vector<TracedCall> calls;
  std::vector<Span> waits;  // for communication, disjoint and in order
  std::vector<TracedMemory> memory;
};

/// DataError that names the file if it is not such a trace. Times are those of the file, in nanoseconds until align().
RankTrace read_trace(const std::filesystem::path& path);

/// All times in seconds, so that the step of the first rank begins at 0. Returns by how much they were shifted.
double align(std::vector<RankTrace>& ranks);

/// Overlapping spans joined, in order.
std::vector<Span> joined(std::vector<Span> spans);
/// Of disjoint spans in order.
double total(const std::vector<Span>& spans);
/// What is in both; both disjoint and in order.
std::vector<Span> common(const std::vector<Span>& a, const std::vector<Span>& b);

/// "tp{0,1}": the name and the ranks; `ranks` is empty if the text does not list them all.
struct GroupText {
  std::string name;
  std::vector<int> ranks;
  int size = 0;  // 0: unknown
};
GroupText parse_group(const std::string& text);

}  // namespace trireme::report
