#pragma once
// The folder of a run: its name, made from a pattern, and the link `latest` that points to it.
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/layout/grid.hpp"

namespace trireme::report {

struct RunFacts {
  std::chrono::system_clock::time_point time{};  // %date, in UTC: 20261115-0031
  std::string job_id{};                          // %jobid, of the scheduler; empty: the process id stands for it
  std::string layout = "single";                 // %layout, see layout_word
};

struct RunFolder {
  std::filesystem::path path;
  std::string warning{};  // why `latest` does not point to it; empty: it does
};

/// "dp2tp2": axes of degree one are left out; "single" if none is left.
std::string layout_word(const std::vector<Grid::AxisValue>& axes);

/// The pattern with its words filled in. ConfigError for an unknown %word, and for a name that is not one of a folder beside others: with
/// a slash, "..", a control character, empty, "." or "latest".
std::string run_name(const std::string& pattern, const RunFacts& facts);

/// Makes dir/NAME and points dir/latest to it. A folder that has something in it, or that another run takes at the same moment, is never
/// used: NAME-2, NAME-3, ... is. The folder then holds an empty metrics.jsonl, by which it is taken. For rank 0 alone; a run that goes on
/// in its old folder does not come here. ConfigError if the folder cannot be made.
RunFolder make_run_folder(const std::filesystem::path& dir, const std::string& pattern, const RunFacts& facts);

}  // namespace trireme::report
