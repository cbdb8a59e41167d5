#pragma once
// The files of a run that a report is made of. Whatever is missing or damaged is left out, and said.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/read/parse.hpp"
#include "trireme/layout/grid.hpp"
#include "trireme/report/operation_trace.hpp"
#include "trireme/report/trace_file.hpp"

namespace trireme::report {

/// Records with numbers, by column: one value per row, NaN where a record has none.
struct Columns {
  std::vector<std::int64_t> steps;
  std::map<std::string, std::vector<double>, std::less<>> values;

  std::size_t rows() const { return steps.size(); }
  /// Empty if no record has it.
  const std::vector<double>& operator[](std::string_view key) const;
  bool has(std::string_view key) const { return !(*this)[key].empty(); }
};

/// A line of ranks.jsonl: lists with one value per rank.
struct RankRow {
  std::int64_t step = 0;
  std::vector<double> own_work_s, bubbles, peak_bytes;
};

/// A line of events.jsonl.
struct Event {
  double time = 0;  // seconds since 1970
  std::string name;
  std::map<std::string, std::string> words;  // of the other keys: text, and numbers as they are written
  std::map<std::string, double> numbers;     // those that are numbers

  std::string word(const std::string& key) const;
  std::optional<double> number(const std::string& key) const;
  /// Of a number from -1e9 to 1e15, which every count and code is; else nullopt.
  std::optional<std::int64_t> whole(const std::string& key) const;
};

struct TracedStep {
  std::int64_t step = 0;
  double begin = 0;              // of the first rank, in seconds since 1970; all times of the ranks count from it
  std::vector<RankTrace> ranks;  // those that have a file, in ascending order
};

/// Steps that were trained on one layout.
struct Segment {
  std::int64_t first = 1, last = 0;  // last < first: none has been recorded yet
  std::string layout;                // "dp 2 tp 2"
  int ranks = 0;                     // 0: not known
  std::optional<double> predicted_bytes{};
  std::vector<std::int64_t> starts;  // the first step of each start

  bool has(std::int64_t step) const { return step >= first && step <= last; }
  bool is_start(std::int64_t step) const;
};

struct RunFiles {
  std::filesystem::path folder;
  std::string name;
  Columns metrics;
  std::vector<RankRow> ranks;
  std::vector<Event> events;
  std::vector<Segment> segments;               // segments_of(): the last one is what the config is of
  std::optional<config::LoadedConfig> config;  // derived for the ranks that were started
  std::vector<TracedStep> traces;              // in ascending order of the steps
  std::optional<OperationTrace> operations;    // OperationTraces::add_to
  std::vector<std::string> problems;           // files that are missing or damaged

  /// The newest event of this name, or nullptr.
  const Event* last(std::string_view event) const;
  /// Of this step; nullptr: of none that is known.
  const Segment* segment_of(std::int64_t step) const;
  /// Whether the layout of this step is that of the config.
  bool is_of_last_layout(std::int64_t step) const;
  /// That were started, by the newest start; 0: unknown.
  int world_size() const;
  /// The config's grid, if it is for all ranks.
  std::optional<Grid> grid() const;
};

/// ConfigError if `folder` is not the folder of a run: there is no metrics.jsonl in it. Without `operations`: reading
/// them takes a second per 100,000 events.
RunFiles read_run(const std::filesystem::path& folder);

/// Keeps what it has read, for a page that is written again and again.
class OperationTraces {
 public:
  /// Of the lowest rank that has a file, the newest.
  void add_to(RunFiles& run);

 private:
  struct Known {
    std::filesystem::file_time_type changed;
    std::optional<OperationTrace> trace;
  };
  std::map<std::filesystem::path, Known> known_;
};

}  // namespace trireme::report
