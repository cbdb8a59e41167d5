#include "trireme/train/run/choose_run.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/checkpoint/format/commit.hpp"
#include "trireme/checkpoint/format/exported_files.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/files/folder_lock.hpp"
#include "trireme/train/run/own_folder.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Of the runs that may be meant: to look at thousands would take longer than the start of a run may.
constexpr std::size_t kNewestRuns = 16;

/// The manifest of the newest complete checkpoint of a run. StorageError if `must_be_readable`, and a newer one cannot
/// be read: it may be intact.
std::optional<checkpoint::Manifest> newest_manifest(const fs::path& run, bool must_be_readable = false) {
  for (const checkpoint::FoundCheckpoint& found : checkpoint::checkpoints_in(run / "checkpoints")) try {
      return checkpoint::Reader(found.path).manifest();
    } catch (const StorageError& e) {
      if (must_be_readable)
        throw StorageError(
            text("whether ", run.string(), " goes on is not known: ", e.what(), "; or --resume never for a new run"));
    } catch (const Error&) {  // damaged, or not ours: an older one may be good
    }
  return std::nullopt;
}

std::string stored_value(const checkpoint::Manifest& manifest, const std::string& key) {
  const auto found = manifest.config.find(key);
  return found == manifest.config.end() ? "" : found->second;
}

std::int64_t planned_steps(const checkpoint::Manifest& manifest) {
  const std::string stored = stored_value(manifest, "training.steps");
  std::int64_t steps = 0;
  std::from_chars(stored.data(), stored.data() + stored.size(), steps);
  return steps;
}

/// Why this run must not write to the folder, or "". ConfigError if its lock cannot be taken at all.
std::string why_not_free(const fs::path& run) {
  try {
    lock_run(run);
    return "";
  } catch (const files::LockHeld& e) {
    const std::string what = e.what(), line = what.substr(0, what.find('\n')), folder = run.string() + ": ";
    return line.starts_with(folder) ? line.substr(folder.size()) : line;
  }
}

std::string steps_text(std::int64_t steps) { return text(steps, steps == 1 ? " step" : " steps"); }

/// Looks for the run that goes on: Note [Which run goes on].
class Search {
 public:
  Search(const RunRequest& request, std::vector<std::string>& notes)
      : request_(request),
        notes_(notes),
        own_name_(request.config.run.name.find('%') == std::string::npos),
        by_path_(request.config.checkpoint.resume != "auto") {}

  /// The run that goes on, or is complete.
  std::optional<ChosenRun> found() {
    std::vector<fs::path> runs = metrics::runs_of(request_.config.run.dir, request_.config.run.name);
    if (const fs::path own = fs::path(request_.config.run.dir) / request_.config.run.name; own_name_ && !by_path_)
      if (std::error_code failed; fs::is_directory(own, failed) && !files::is_surely_free(own))
        refuse_if_in_use(own, why_not_free(own));  // also one that has saved nothing yet
    std::erase_if(runs, [](const fs::path& run) { return !metrics::has_done_something(run); });
    // The name itself first: a second run of the name, begun while the first one was running, is not what is meant.
    const auto exact = std::ranges::find_if(runs, [&](const fs::path& run) { return is_exact(run); });
    if (exact != runs.end() && state_of(*exact) == State::goes_on) return ChosenRun{{*exact, /*is_new=*/false}};
    runs.resize(std::min(runs.size(), kNewestRuns));
    for (const fs::path& run : runs) {
      const State state = state_of(run);
      if (state == State::goes_on) return ChosenRun{{run, /*is_new=*/false}};
      if (state == State::complete && !has_other_config(run))
        return ChosenRun{{run, /*is_new=*/false}, complete_text(run, request_.config, steps_)};
    }
    return std::nullopt;
  }

 private:
  enum class State { not_meant, complete, in_use, goes_on };

  static void refuse_if_in_use(const fs::path& run, const std::string& in_use) {
    require<ConfigError>(in_use.empty(), run.string(), ": ", in_use,
                         "\n  fix: wait until that run ends, or stop it; --run.name for another run next to it");
  }
  bool is_exact(const fs::path& run) const { return own_name_ && run.filename() == request_.config.run.name; }
  void note(const fs::path& run, const std::string& why) {
    notes_.push_back(text(run.string(), " is not resumed: ", why));
  }

  /// Of a complete run of the user's own name. If it has exactly that name, the command asks for something else than
  /// what is there; NAME-2 may be a variant that was begun with --resume never, and is passed over.
  bool has_other_config(const fs::path& run) const {
    const std::optional<checkpoint::Manifest> newest = newest_manifest(run);
    if (!own_name_ || !newest) return false;
    const std::vector<std::string> changes = changes_of_complete_run(newest->config, request_.given);
    if (changes.empty() || !is_exact(run)) return !changes.empty();
    std::string listed;
    for (const std::string& change : changes) listed += "\n  " + change;
    throw CheckpointError(text(run.string(), ": is complete (", steps_text(newest->training.step),
                               "), and the config no longer matches it", listed,
                               "\n  fix: --resume never for a new run next to it, or --run.name for another name"));
  }

  State state_of(const fs::path& run) {
    // Of a run of exactly this name the resume itself reports what cannot be read.
    const std::optional<checkpoint::Manifest> newest = newest_manifest(run, !is_exact(run) || by_path_);
    if (!newest) {
      if (checkpoint::checkpoints_in(run / "checkpoints").empty()) return State::not_meant;
      // A run of the user's own name is not begun anew without a word.
      if (is_exact(run) && !by_path_) return State::goes_on;
      if (own_name_) note(run, "none of its checkpoints can be read");
      return State::not_meant;
    }
    if (!is_meant(run, *newest)) return State::not_meant;
    steps_ = own_name_ ? request_.config.training.steps : planned_steps(*newest);
    const std::string in_use = why_not_free(run);
    if (own_name_) refuse_if_in_use(run, in_use);
    if (!in_use.empty()) {
      note(run, in_use);
      return State::in_use;
    }
    const std::optional<checkpoint::Manifest> now = newest_manifest(run);  // it may have ended while we waited
    return now.value_or(*newest).training.step >= steps_ ? State::complete : State::goes_on;
  }

  bool is_meant(const fs::path& run, const checkpoint::Manifest& newest) const {
    const auto same = [&](const std::string& key) { return stored_value(newest, key) == request_.given.at(key); };
    if (!is_exact(run) && !same("run.name")) return false;
    if (by_path_ && !same("checkpoint.resume")) return false;
    return (own_name_ && !by_path_) || is_same_run(newest.config, request_.given);
  }

  const RunRequest& request_;
  std::vector<std::string>& notes_;
  const bool own_name_, by_path_;
  std::int64_t steps_ = 0;  // of the run that was looked at last
};

/// The run that an earlier attempt of this launcher has begun.
std::optional<fs::path> run_of_this_start(const RunRequest& request) {
  if (request.attempt == 0 || request.start.empty()) return std::nullopt;
  for (const fs::path& run : metrics::runs_of(request.config.run.dir, request.config.run.name)) {
    std::ifstream file(run / metrics::kStartName);
    if (std::string line; std::getline(file, line) && line == request.start) return run;
  }
  return std::nullopt;
}

}  // namespace

std::string complete_text(const fs::path& run, const Config& config, std::int64_t steps) {
  const std::optional<checkpoint::Manifest> newest = newest_manifest(run);
  if (!newest || newest->training.step < steps) return "";
  const std::int64_t done = newest->training.step;
  std::string out = text(run.string(), " is complete (", steps_text(done), "): nothing to do");
  const fs::path checkpoint = run / "checkpoints" / text("step-", done);
  try {
    if (config.checkpoint.export_hf && !checkpoint::exported_in(checkpoint, newest->id))
      out += text("\n  the weights for transformers were not written: trireme convert ", checkpoint.string(),
                  " OUT --to hf");
  } catch (const CheckpointError&) {  // `trireme checkpoint verify` tells
  }
  return out + "\n  --resume never starts a new run";
}

void remove_unfinished_of_runs(const fs::path& dir) {
  std::error_code failed;
  for (auto run = fs::directory_iterator(dir, failed); !failed && run != fs::directory_iterator();
       run.increment(failed))
    try {
      const fs::path checkpoints = run->path() / "checkpoints";
      if (run->is_symlink() || !checkpoint::has_unfinished(checkpoints) || !files::is_surely_free(run->path()))
        continue;
      const files::FolderLock lock(run->path());
      checkpoint::remove_unfinished(files::real_fs(), checkpoints);
    } catch (const Error&) {  // not ours to remove
    }
}

ChosenRun choose_run(const RunRequest& request) {
  const Config& config = request.config;
  metrics::run_name(config.run.name, request.facts);  // reports errors in run.name itself
  ChosenRun out;
  if (const std::optional<fs::path> begun = run_of_this_start(request)) {
    out.folder = {*begun, /*is_new=*/false};
    out.complete = complete_text(*begun, config, config.training.steps);
    return out;
  }
  if (config.checkpoint.resume != "never")
    if (std::optional<ChosenRun> found = Search(request, out.notes).found()) {
      found->notes = std::move(out.notes);
      return *found;
    }
  try {
    out.folder = metrics::make_run_folder(config.run.dir, config.run.name, request.facts);
    if (!request.start.empty()) replace_file(out.folder.path / metrics::kStartName, request.start + "\n");
    return out;
  } catch (const Error& e) {
    throw ConfigError(
        text("run.dir = \"", config.run.dir, "\": ", e.what(), "\n  fix: a folder that can be written to"));
  }
}

}  // namespace trireme
