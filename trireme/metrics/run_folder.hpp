#pragma once
// The run folder: its name, generated from a pattern, and the symlink `latest` to it.
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/layout/grid.hpp"

namespace trireme::metrics {

struct RunFacts {
  std::chrono::system_clock::time_point time{};  // %date, in UTC: 20261115-0031
  std::string job_id{};                          // %jobid, from the scheduler; empty: the process id
  std::string layout = "single";                 // %layout, see layout_word
};

/// "dp2tp2": axes of degree one are omitted; "single" if none is left.
std::string layout_word(const std::vector<Grid::AxisValue>& axes);

/// The pattern with its placeholders replaced. ConfigError for an unknown %word, and for an invalid folder name: with a
/// slash, "..", a control character, empty, "." or "latest".
std::string run_name(const std::string& pattern, const RunFacts& facts);

struct RunFolder {
  std::filesystem::path path;
  bool is_new = true;  // false: it was there before, empty
};

/// Creates dir/NAME. A non-empty folder, or one that another run claims at the same time,
/// is never used: NAME-2, NAME-3, ... is tried. The folder then contains an empty metrics.jsonl, which marks it as
/// claimed. Only for rank 0; a run that resumes in its old folder does not call this. ConfigError if the folder cannot
/// be created.
RunFolder make_run_folder(const std::filesystem::path& dir, const std::string& pattern, const RunFacts& facts);

/// The folders of runs in `dir` that make_run_folder could have made for this pattern, at any time: those that have
/// recorded a step or saved a checkpoint last come first. NAME-2 fits too, which may be a name that somebody has given:
/// what the run itself has stored tells.
std::vector<std::filesystem::path> runs_of(const std::filesystem::path& dir, const std::string& pattern);

/// A file of the run's folder that says who has started the run: see Note [Which run goes on].
inline constexpr const char* kStartName = ".start";

/// Points the link `latest` next to `run` to it. Returns why that was not possible, or "": a run works without it.
std::string point_latest_to(const std::filesystem::path& run);

/// Whether there is a record of a step, or something in checkpoints/.
bool has_done_something(const std::filesystem::path& run);
/// Whether this is the folder of a run without a record of a step and without a checkpoint.
bool nothing_was_done(const std::filesystem::path& run);
/// Removes all that a start writes (logs, config), and the folder unless it was there before; leaves the folders of
/// other runs alone. `latest`, if it is the link to this run, becomes the link to the newest run that has done a step.
void remove_if_nothing_was_done(const RunFolder& run);

}  // namespace trireme::metrics
