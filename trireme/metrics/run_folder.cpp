#include "trireme/metrics/run_folder.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <optional>
#include <regex>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/metrics/events_file.hpp"

namespace trireme::metrics {
namespace {

namespace fs = std::filesystem;

constexpr int kMostOfOneName = 10'000;

struct Placeholder {
  std::string_view word;
  const char* expression;
};
constexpr std::array<Placeholder, 3> kPlaceholders{
    {{"%date", "[0-9]{8}-[0-9]{4}"}, {"%jobid", "[^/]+"}, {"%layout", "[a-z0-9]+"}}};

std::string two_digits(unsigned value) { return (value < 10 ? "0" : "") + std::to_string(value); }

std::string date_text(std::chrono::system_clock::time_point time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const auto minutes = static_cast<unsigned>(std::chrono::floor<std::chrono::minutes>(time - day).count());
  return text(static_cast<int>(date.year()), two_digits(static_cast<unsigned>(date.month())),
              two_digits(static_cast<unsigned>(date.day())), "-", two_digits(minutes / 60), two_digits(minutes % 60));
}

std::string filled_in(std::string_view word, const std::string& pattern, const RunFacts& facts) {
  if (word == "%date") return date_text(facts.time);
  if (word == "%jobid") return facts.job_id.empty() ? std::to_string(::getpid()) : facts.job_id;
  if (word == "%layout") return facts.layout;
  throw ConfigError(text("run.name = \"", pattern, "\": \"", word, "\" is not known",
                         "\n  fix: use %date, %jobid or %layout, or no %"));
}

void check_name(const std::string& name, const std::string& pattern) {
  const bool control =
      std::any_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
  require<ConfigError>(!control, "run.name: a control character in the name of a folder\n  fix: leave it out");
  const bool single =
      !name.empty() && name != "." && name.find('/') == std::string::npos && name.find("..") == std::string::npos;
  require<ConfigError>(single, "run.name = \"", pattern, "\" gives \"", name,
                       "\", which is not the name of one folder: no /, no .., not empty",
                       "\n  fix: put the folders above it into run.dir");
  constexpr std::size_t kLongest = 240;  // of the 255 bytes of a file's name: "-2" and others are added to it
  require<ConfigError>(name.size() <= kLongest, "run.name = \"", pattern.substr(0, 40), "...\" gives a name of ",
                       name.size(), " bytes: a folder's has at most ", kLongest, "\n  fix: a shorter one");
  require<ConfigError>(name != "latest", "run.name = \"", pattern,
                       "\": this is the link to the newest run\n  fix: choose another name");
}

/// nullopt if another run has it, or if it is not a folder.
std::optional<RunFolder> take(const fs::path& folder) {
  std::error_code made, error;
  const bool is_new = fs::create_directory(folder, made);
  if (!fs::is_directory(folder, error)) {
    const bool taken = fs::exists(fs::symlink_status(folder, error));  // by a file, or a dangling symlink
    require<ConfigError>(taken, folder.string(), ": cannot be made a folder: ", made.message());
    return std::nullopt;
  }
  const bool empty = fs::is_empty(folder, error);
  require<ConfigError>(!error, folder.string(), ": cannot be read: ", error.message());
  if (!empty) return std::nullopt;
  // If two runs find the same empty folder, only one of them can create this file.
  const fs::path mark = folder / "metrics.jsonl";
  const int fd = ::open(mark.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0 && errno == EEXIST) return std::nullopt;
  require<ConfigError>(fd >= 0, mark.string(), ": cannot be made: ", errno_text(errno));
  ::close(fd);
  return RunFolder{folder, is_new};
}

/// Whether `name` is the pattern with any values for its placeholders, and perhaps "-2".
bool fits_pattern(const std::string& name, const std::string& pattern) {
  std::string expression;
  for (std::size_t i = 0; i < pattern.size();) {
    const auto word = std::ranges::find_if(
        kPlaceholders, [&](const Placeholder& p) { return std::string_view(pattern).substr(i).starts_with(p.word); });
    if (word != kPlaceholders.end()) {
      expression += word->expression;
      i += word->word.size();
    } else {
      if (std::isalnum(static_cast<unsigned char>(pattern[i])) == 0) expression += '\\';
      expression += pattern[i++];
    }
  }
  return std::regex_match(name, std::regex(expression + "(-[0-9]+)?"));
}

/// When the last step was recorded or the last checkpoint appeared, or the folder was claimed; nullopt: not a run.
std::optional<fs::file_time_type> last_work(const fs::path& run) {
  std::optional<fs::file_time_type> last;
  for (const char* name : {"metrics.jsonl", "checkpoints"}) {
    std::error_code none;
    const fs::file_time_type time = fs::last_write_time(run / name, none);
    if (!none && (!last || *last < time)) last = time;
  }
  return last;
}

/// The runs in `dir`, those that have done something last first.
std::vector<fs::path> runs_by_time(const fs::path& dir) {
  std::vector<std::pair<fs::file_time_type, fs::path>> runs;
  std::error_code error;
  for (auto run = fs::directory_iterator(dir, error); !error && run != fs::directory_iterator(); run.increment(error))
    if (run->path().filename() != "latest")
      if (const auto time = last_work(run->path())) runs.emplace_back(*time, run->path());
  std::ranges::sort(runs, std::greater<>());
  std::vector<fs::path> out;
  for (auto& [time, path] : runs) out.push_back(std::move(path));
  return out;
}

}  // namespace

std::vector<fs::path> runs_of(const fs::path& dir, const std::string& pattern) {
  std::vector<fs::path> runs = runs_by_time(dir);
  std::erase_if(runs, [&](const fs::path& run) { return !fits_pattern(run.filename(), pattern); });
  return runs;
}

std::string point_latest_to(const fs::path& run) {
  const fs::path dir = run.parent_path();
  const std::string name = run.filename();
  const fs::path latest = dir / "latest";
  std::error_code error;
  const fs::file_status there = fs::symlink_status(latest, error);
  if (fs::exists(there) && !fs::is_symlink(there))
    return text(latest.string(), " is not a link and stays as it is; this run is in ", (dir / name).string());
  // Created under a unique name, then renamed: a reader finds the old run or the new one, never none.
  const fs::path temporary = dir / (".latest-" + name);
  fs::remove(temporary, error);
  fs::create_symlink(name, temporary, error);
  if (!error) fs::rename(temporary, latest, error);
  if (!error) return "";
  std::error_code ignored;
  fs::remove(temporary, ignored);
  return text(latest.string(), ": cannot be made to point to ", name, ": ", error.message());
}

bool has_done_something(const fs::path& run) {
  std::error_code none;
  if (const auto bytes = fs::file_size(run / "metrics.jsonl", none); !none && bytes > 0) return true;
  const bool empty = fs::is_empty(run / "checkpoints", none);
  return !none && !empty;
}

bool nothing_was_done(const fs::path& run) {
  std::error_code error;
  return fs::file_size(run / "metrics.jsonl", error) == 0 && !error && !fs::exists(run / "checkpoints", error);
}

void remove_if_nothing_was_done(const RunFolder& run) {
  if (!nothing_was_done(run.path)) return;
  std::error_code error;
  const fs::path dir = run.path.parent_path();
  const bool is_latest = fs::read_symlink(dir / "latest", error) == run.path.filename() && !error;
  if (run.is_new) {
    fs::remove_all(run.path, error);
  } else {  // the user's folder, or a link to it: it was empty
    for (const char* name :
         {"config.toml", "ranks", "tb", "trace", kStartName, kEventsName, "ranks.jsonl", "metrics.jsonl"})
      fs::remove_all(run.path / name, error);
  }
  if (!is_latest) return;
  const std::vector<fs::path> runs = runs_by_time(dir);
  if (const auto newest = std::ranges::find_if(runs, has_done_something); newest != runs.end())
    point_latest_to(*newest);
  else
    fs::remove(dir / "latest", error);
}

std::string layout_word(const std::vector<Grid::AxisValue>& axes) {
  std::string word;
  for (const auto& [axis, degree] : axes)
    if (degree != 1) word += text(name(axis), degree);
  return word.empty() ? "single" : word;
}

std::string run_name(const std::string& pattern, const RunFacts& facts) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size();) {
    if (pattern[i] != '%') {
      out += pattern[i++];
      continue;
    }
    std::size_t end = i + 1;
    while (end < pattern.size() && std::isalpha(static_cast<unsigned char>(pattern[end])) != 0) ++end;
    out += filled_in(std::string_view(pattern).substr(i, end - i), pattern, facts);
    i = end;
  }
  check_name(out, pattern);
  return out;
}

RunFolder make_run_folder(const fs::path& dir, const std::string& pattern, const RunFacts& facts) {
  const std::string first = run_name(pattern, facts);
  make_folder(dir);
  for (int number = 1; number <= kMostOfOneName; ++number) {
    const std::string name = number == 1 ? first : text(first, "-", number);
    if (const std::optional<RunFolder> taken = take(dir / name)) return *taken;
  }
  throw ConfigError(text((dir / first).string(), ": there are ", kMostOfOneName,
                         " runs of this name\n  fix: put %date into run.name"));
}

}  // namespace trireme::metrics
