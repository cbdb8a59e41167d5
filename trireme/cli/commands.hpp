#pragma once
// What each command of `trireme` does, once its words have been read (command_line.cpp). Each is in a file of its name.
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/terminal.hpp"
#include "trireme/config/read/setting.hpp"
#include "trireme/schedule/replay.hpp"

namespace trireme::cli {

/// Where a command writes: results to `out`, warnings and errors to `err`.
struct Console {
  std::ostream& out;
  std::ostream& err;
  TerminalFacts terminal;        // of `out`
  TerminalFacts err_terminal{};  // of `err`
};

struct ScheduleOptions {
  std::string name;
  int stages = 4;
  int microbatches = 8;
  int virtual_stages = 0;  // 0: not given, two for interleaved-1f1b
  schedule::ActionCosts costs;
  std::string svg;          // file to write; empty: none
  bool print_text = false;  // the text form instead of a drawing
};
ExitCode run_schedule(const ScheduleOptions& options, Console& console);

struct ConfigOptions {
  std::string file;            // empty: defaults and flags only
  config::Settings overrides;  // --a.b value
  int ranks = 0;               // 0: not known
  std::string from;            // import: the trainer, when it cannot be told from the file
  std::string output;          // import: file to write; empty: standard output
};
ExitCode run_config_show(const ConfigOptions& options, Console& console);
ExitCode run_config_check(const ConfigOptions& options, Console& console);
ExitCode run_config_import(const ConfigOptions& options, Console& console);

struct TrainCommand {
  std::string file;
  config::Settings overrides;      // --a.b value
  int ranks = 0;                   // of this host; 0: not given
  std::string master;              // HOST:PORT
  std::vector<std::string> words;  // the whole command line, for ranks that are started from it
  std::string version;             // "trireme 0.1.0"
  std::string run_folder;          // where a launcher has made it already
  int terminal_width = 0;          // of the terminal that a launcher shows rank 0's output on; 0: it is none
  bool terminal_color = false;
};
/// The exit code is the job's.
int run_train(const TrainCommand& command, Console& console);

struct LaunchCommand {
  int ranks = 0;  // of this host; 0: not given
  int num_nodes = 1, node_rank = 0;
  std::string master;    // HOST:PORT
  std::string hostfile;  // start the ranks of these hosts, through `ssh`
  std::string ssh = "ssh -o BatchMode=yes";
  std::string logs;  // folder for the ranks' output; empty: a new one under runs/
  int threads = 0;
  int world_size = 0, first_rank = 0;  // for hosts with different numbers of ranks
  bool control_stdin = false;          // a launcher above this one holds the other end of its standard input
  std::vector<std::string> program;
};
/// The exit code is the job's, so it need not be one of ours.
int run_launch(const LaunchCommand& command, Console& console);

ExitCode run_doctor(Console& console);
/// The part of the doctor's report that only a build with libtorch can give.
std::vector<std::vector<std::string>> libtorch_report();

/// Reads the words, runs the command, prints what went wrong; the process's exit code.
int run_command_line(int argc, const char* const* argv, Console& console);

}  // namespace trireme::cli
