#include "trireme/report/run_files.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/config/read/derive.hpp"
#include "trireme/config/schema/dense_grid.hpp"
#include "trireme/config/settings/toml_file.hpp"
#include "trireme/report/run_segments.hpp"

namespace trireme::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// Calls `use` with each line that is a JSON object. A last line without its end is one that is being written, or was
/// when the machine failed.
template <class Use>
void for_each_record(const fs::path& path, std::vector<std::string>& problems, const Use& use) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return problems.push_back(text(path.filename().string(), " is missing or cannot be read"));
  std::int64_t damaged = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty()) continue;
    const Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (record.is_object())
      use(record);
    else
      ++damaged;
  }
  if (damaged > 0)
    problems.push_back(text(path.filename().string(), ": ", damaged, damaged == 1 ? " line is" : " lines are",
                            " not whole, and left out"));
}

std::optional<double> number_in(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_boolean()) return value.get<bool>() ? 1.0 : 0.0;
  return std::nullopt;
}

std::optional<std::int64_t> step_in(const Json& record) {
  const auto step = record.find("step");
  if (step == record.end() || !step->is_number_integer()) return std::nullopt;
  return step->get<std::int64_t>();
}

void read_metrics(RunFiles& run) {
  Columns& table = run.metrics;
  for_each_record(run.folder / "metrics.jsonl", run.problems, [&](const Json& record) {
    const std::optional<std::int64_t> step = step_in(record);
    if (!step) return;
    // A run that resumed without its trainer's help (copied files) may repeat steps: the last record of one counts.
    while (!table.steps.empty() && table.steps.back() >= *step) {
      table.steps.pop_back();
      for (auto& [key, values] : table.values) values.resize(std::min(values.size(), table.steps.size()));
    }
    table.steps.push_back(*step);
    for (const auto& [key, value] : record.items()) {
      const std::optional<double> number = number_in(value);
      if (!number || key == "step") continue;
      std::vector<double>& column = table.values[key];
      column.resize(table.rows(), kNone);
      column.back() = *number;
    }
  });
  for (auto& [key, values] : table.values) values.resize(table.rows(), kNone);
}

std::vector<double> list_in(const Json& record, const char* key) {
  std::vector<double> out;
  if (const auto list = record.find(key); list != record.end() && list->is_array())
    for (const Json& value : *list) out.push_back(number_in(value).value_or(kNone));
  return out;
}

void read_ranks(RunFiles& run) {
  for_each_record(run.folder / "ranks.jsonl", run.problems, [&](const Json& record) {
    if (const std::optional<std::int64_t> step = step_in(record))
      run.ranks.push_back(
          {*step, list_in(record, "own_work_s"), list_in(record, "bubble"), list_in(record, "peak_bytes")});
  });
}

void read_events(RunFiles& run) {
  for_each_record(run.folder / "events.jsonl", run.problems, [&](const Json& record) {
    Event event;
    for (const auto& [key, value] : record.items()) {
      event.words[key] = value.is_string() ? value.get<std::string>() : value.dump();
      if (const std::optional<double> number = number_in(value)) event.numbers[key] = *number;
    }
    event.time = event.number("time").value_or(0);
    event.name = event.word("event");
    run.events.push_back(std::move(event));
  });
}

void read_config(RunFiles& run) {
  const fs::path path = run.folder / "config.toml";
  std::error_code error;
  if (!fs::exists(path, error)) return run.problems.push_back("config.toml is missing");
  try {
    config::LoadedConfig loaded = config::load_config_text(path.string(), config::read_config_file(path.string()));
    config::derive(loaded, {.ranks = run.world_size()});
    run.config = std::move(loaded);
  } catch (const Error& e) {
    run.problems.push_back(text("config.toml cannot be used: ", e.what()));
  }
}

/// N of "stepN"; nullopt for another name.
std::optional<std::int64_t> number_behind(const std::string& name, std::string_view word,
                                          std::string_view ending = "") {
  if (!name.starts_with(word) || !name.ends_with(ending)) return std::nullopt;
  std::int64_t value = 0;
  const char* const end = name.data() + name.size() - ending.size();
  const auto [rest, failure] = std::from_chars(name.data() + word.size(), end, value);
  return failure == std::errc() && rest == end ? std::optional(value) : std::nullopt;
}

fs::path trace_folder(const RunFiles& run) {
  return run.folder / (run.config ? run.config->config.profiler.dir : "trace");
}

struct OperationFile {
  std::int64_t rank = 0, step = 0;
  fs::path path;
};

/// "rank0.step5.pt.trace.json.gz": of the lowest rank, the newest.
std::optional<OperationFile> newest_operations(const RunFiles& run) {
  std::optional<OperationFile> best;
  std::error_code error;
  for (auto file = fs::directory_iterator(trace_folder(run) / "operations", error);
       !error && file != fs::directory_iterator(); file.increment(error)) {
    const std::string name = file->path().filename();
    const std::size_t dot = std::min(name.find('.'), name.size());
    const auto rank = number_behind(name.substr(0, dot), "rank");
    if (!rank || *rank < 0 || *rank >= Grid::kMaxRanks) continue;
    for (const char* ending : {".pt.trace.json", ".pt.trace.json.gz"})
      if (const auto step = number_behind(name.substr(dot), ".step", ending))
        if (!best || std::pair(-*rank, *step) > std::pair(-best->rank, best->step))
          best = OperationFile{*rank, *step, file->path()};
  }
  return best;
}

/// Not of a layout whose steps were trained again: its ranks may be others, and their files stay.
bool is_of_its_step(const RunFiles& run, const RankTrace& trace, std::int64_t step) {
  const Segment* segment = run.segment_of(step);
  if (segment != nullptr && segment->ranks > 0 && trace.world_size > 0 && trace.world_size != segment->ranks)
    return false;
  constexpr double kClocks = 1;  // by how much those of two hosts may differ
  return trace.began == 0 || trace.began > began_on_its_layout(run.events, step) - kClocks;
}

void read_traces(RunFiles& run) {
  constexpr std::size_t kMostTraces = 64;  // more cannot be drawn
  const fs::path folder = trace_folder(run);
  std::error_code error;
  for (auto step = fs::directory_iterator(folder, error); !error && step != fs::directory_iterator();
       step.increment(error)) {
    const std::optional<std::int64_t> number = number_behind(step->path().filename(), "step");
    if (!number) continue;
    TracedStep traced{.step = *number, .ranks = {}};
    std::map<std::int64_t, fs::path> files;
    std::error_code failure;
    for (auto file = fs::directory_iterator(step->path(), failure); !failure && file != fs::directory_iterator();
         file.increment(failure))
      for (const char* ending : {".json", ".json.gz"})
        if (const auto rank = number_behind(file->path().filename(), "rank", ending);
            rank && *rank >= 0 && *rank < Grid::kMaxRanks)
          files[*rank] = file->path();
    for (const auto& [rank, path] : files) {
      if (traced.ranks.size() == kMostTraces) break;
      try {
        RankTrace trace = read_trace(path);
        if (!is_of_its_step(run, trace, *number)) continue;
        traced.ranks.push_back(std::move(trace));
        traced.ranks.back().rank = static_cast<int>(rank);
      } catch (const Error& e) {
        run.problems.emplace_back(e.what());
      }
    }
    traced.begin = align(traced.ranks);
    if (!traced.ranks.empty()) run.traces.push_back(std::move(traced));
  }
  std::ranges::sort(run.traces, {}, &TracedStep::step);
}

}  // namespace

const std::vector<double>& Columns::operator[](std::string_view key) const {
  static const std::vector<double> kEmpty;
  const auto found = values.find(key);
  return found == values.end() ? kEmpty : found->second;
}

std::string Event::word(const std::string& key) const {
  const auto found = words.find(key);
  return found == words.end() ? "" : found->second;
}

std::optional<double> Event::number(const std::string& key) const {
  const auto found = numbers.find(key);
  return found == numbers.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::int64_t> Event::whole(const std::string& key) const {
  const std::optional<double> value = number(key);
  if (!value || !(*value >= -1e9 && *value <= 1e15)) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

const Event* RunFiles::last(std::string_view event) const {
  const auto found = std::find_if(events.rbegin(), events.rend(), [&](const Event& e) { return e.name == event; });
  return found == events.rend() ? nullptr : &*found;
}

bool Segment::is_start(std::int64_t step) const { return std::ranges::find(starts, step) != starts.end(); }

const Segment* RunFiles::segment_of(std::int64_t step) const {
  const auto found = std::ranges::find_if(segments, [&](const Segment& segment) { return segment.has(step); });
  return found == segments.end() ? nullptr : &*found;
}

bool RunFiles::is_of_last_layout(std::int64_t step) const { return segments.empty() || step >= segments.back().first; }

int RunFiles::world_size() const {
  if (const Event* start = last("start"))
    if (const auto size = start->whole("ranks"); size && *size >= 1 && *size <= Grid::kMaxRanks)
      return static_cast<int>(*size);
  return 0;
}

std::optional<Grid> RunFiles::grid() const {
  if (!config) return std::nullopt;
  try {
    const Grid grid = config::dense_grid(config->config.parallelism);
    if (world_size() == 0 || grid.size() == world_size()) return grid;
  } catch (const Error&) {  // a config that no run can have had
  }
  return std::nullopt;
}

RunFiles read_run(const fs::path& folder) {
  std::error_code error;
  require<ConfigError>(fs::exists(folder, error), folder.string(),
                       ": no such folder\n  fix: the folder of a run, as runs/latest");
  require<ConfigError>(fs::is_directory(folder, error), folder.string(),
                       ": not a folder\n  fix: the folder of a run, which contains metrics.jsonl");
  require<ConfigError>(fs::is_regular_file(folder / "metrics.jsonl", error), folder.string(),
                       ": not a run, it contains no metrics.jsonl\n  fix: the folder of a run, as runs/latest");
  RunFiles run;
  run.folder = folder;
  fs::path named = fs::canonical(folder, error);
  run.name = (error ? folder : named).filename().string();
  read_metrics(run);
  read_events(run);
  run.segments = segments_of(run.events, run.metrics);
  read_ranks(run);
  read_config(run);
  read_traces(run);
  return run;
}

void OperationTraces::add_to(RunFiles& run) {
  const std::optional<OperationFile> file = newest_operations(run);
  if (!file) return;
  std::error_code error;
  const fs::file_time_type changed = fs::last_write_time(file->path, error);
  try {
    Known& known = known_[file->path];
    if (!known.trace || known.changed != changed) {
      known.trace = read_operation_trace(file->path);
      known.changed = changed;
    }
    run.operations = known.trace;
    run.operations->rank = static_cast<int>(file->rank);
    run.operations->last_step = file->step;
  } catch (const Error& e) {
    run.problems.emplace_back(e.what());
  }
}

}  // namespace trireme::report
