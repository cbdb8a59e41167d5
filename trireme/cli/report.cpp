// `trireme report RUN... [-o FILE] [--watch] [--open] [--timeline FILE]`
#include <chrono>
#include <filesystem>
#include <thread>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/file_output.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/stop_signals.hpp"
#include "trireme/cli/commands.hpp"
#include "trireme/report/page.hpp"
#include "trireme/report/run_facts.hpp"
#include "trireme/report/step_timeline.hpp"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using report::RunState;

struct WrittenReport {
  std::uintmax_t bytes = 0;
  bool running = false;  // some run is not over
};

void write_drawing(const fs::path& output, const std::string& contents, const char* option) {
  try {
    replace_file(output, contents);
  } catch (const ConfigError& e) {
    throw ConfigError(text(e.what(), "\n  fix: ", option, " FILE, in a folder that exists and that you may write to"));
  }
}

ExitCode write_timeline(const ReportOptions& options, Console& console) {
  require<ConfigError>(options.runs.size() == 1, "--timeline with ", options.runs.size(),
                       " runs: it is of one\n  fix: one file per run");
  require<ConfigError>(options.output.empty() && !options.watch && !options.open,
                       "--timeline writes one drawing, and no page\n  fix: without -o, --watch and --open");
  const report::RunFiles run = report::read_run(options.runs.front());
  for (const std::string& problem : run.problems) console.err << "warning: " << problem << "\n";
  const std::string svg = report::step_timeline_svg(run);
  write_drawing(options.timeline, svg, "--timeline");
  console.out << "written to " << options.timeline << " (" << human_bytes(static_cast<double>(svg.size())) << ")"
              << std::endl;
  return ExitCode::done;
}

WrittenReport write_report(const ReportOptions& options, const fs::path& output, report::OperationTraces& operations,
                           Console& console) {
  std::vector<report::RunFiles> runs;
  WrittenReport written;
  for (const std::string& folder : options.runs) {
    runs.push_back(report::read_run(folder));
    operations.add_to(runs.back());
    written.running |= report::state_of(runs.back()).kind == RunState::Kind::running;
    for (const std::string& problem : runs.back().problems)
      if (!options.watch) console.err << "warning: " << runs.back().name << ": " << problem << "\n";
  }
  const std::string page = report::page_html(
      runs, {.program = options.version, .refresh_seconds = options.watch && written.running ? options.interval_s : 0});
  write_drawing(output, page, "-o");
  written.bytes = page.size();
  return written;
}

/// What the desktop shows HTML files with. Without a desktop this fails, and the page is there anyway.
bool open_in_browser(const fs::path& page) {
  std::string program = "xdg-open", file = fs::absolute(page).string();
  char* words[] = {program.data(), file.data(), nullptr};
  pid_t child = 0;
  if (::posix_spawnp(&child, program.c_str(), nullptr, nullptr, words, ::environ) != 0) return false;
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// Until no run goes on any more, or a signal.
void watch(const ReportOptions& options, const fs::path& output, report::OperationTraces& operations,
           Console& console) {
  const StopSignals signals(StopSignals::Then::note);
  for (;;) {
    for (int tenths = 0; tenths < 10 * options.interval_s; ++tenths) {
      if (StopSignals::received() != 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    if (!write_report(options, output, operations, console).running) return;
  }
}

}  // namespace

ExitCode run_report(const ReportOptions& options, Console& console) {
  require<ConfigError>(options.runs.size() <= report::kMostRuns, options.runs.size(), " runs: a report is of at most ",
                       report::kMostRuns, "\n  fix: several reports");
  require<ConfigError>(options.interval_s >= 1 && options.interval_s <= 86400, "--interval ", options.interval_s,
                       ": must be from 1 to 86400 seconds\n  fix: --interval 5");
  if (!options.timeline.empty()) return write_timeline(options, console);
  const fs::path output =
      options.output.empty() ? fs::path(options.runs.front()) / "report.html" : fs::path(options.output);
  report::OperationTraces operations;
  const WrittenReport written = write_report(options, output, operations, console);
  console.out << "written to " << output.string() << " (" << human_bytes(static_cast<double>(written.bytes)) << ")"
              << std::endl;
  if (options.open && !open_in_browser(output))
    console.err << "warning: xdg-open could not show it; open the file in a browser\n";
  if (options.watch && written.running) {
    console.out << "watching: written again every " << options.interval_s << " s until the run ends or Ctrl-C"
                << std::endl;
    watch(options, output, operations, console);
  }
  return ExitCode::done;
}

}  // namespace trireme::cli
