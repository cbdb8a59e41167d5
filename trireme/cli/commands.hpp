#pragma once
// The commands of `trireme`, called with parsed arguments (command_line.cpp). Each is in a file of the same name. Those
// that need libtorch (train, launch, doctor) are in the program trireme-torch, which `trireme` starts for them.
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/terminal.hpp"
#include "trireme/config/schema/config.hpp"
#include "trireme/config/schema/setting.hpp"
#include "trireme/schedule/replay.hpp"

namespace trireme::cli {

/// Output streams of a command: results to `out`, warnings and errors to `err`.
struct Console {
  std::ostream& out;
  std::ostream& err;
  TerminalFacts terminal;        // of `out`
  TerminalFacts err_terminal{};  // of `err`
};

struct ScheduleOptions {
  std::string name;
  std::string file;  // of a schedule, instead of a name
  int stages = 4;
  int microbatches = 8;
  int virtual_stages = 0;  // 0: not given, which means two for interleaved-1f1b
  schedule::ActionCosts costs;
  std::string svg;          // output file; empty: none
  bool print_text = false;  // the text form instead of a drawing
};
ExitCode run_schedule(const ScheduleOptions& options, Console& console);

struct ConfigOptions {
  std::string file;                  // empty: defaults and flags only
  config::Settings overrides;        // --a.b value
  int ranks = 0;                     // 0: unknown
  std::string from;                  // import: the source framework, if it cannot be detected from the file
  std::string output;                // import, new: output file; empty: standard output
  std::string rates;                 // show: the learning rates of these steps instead: "200", "1000:1200"
  bool parameters = false;           // show: the model's parameters instead
  bool json = false;                 // show: JSON lines
  bool all = false;                  // import: list also what changes nothing
  bool no_files = false;             // check: nothing outside the config
  std::string gpu = {};              // check: to predict the speed on; empty: none
  bool explained = false;            // show: each key with its meaning
  std::string config_copy{};         // check: the file as another program has read it; empty: none has
  std::vector<std::string> words{};  // the whole command line
};
/// What `trireme train` checks of a config before it starts, without ranks: token files, tokenizer, vocabulary, initial
/// weights, the options of each part. Throws as it would. Resolves dtypes in `config`. Returns the line about this
/// machine; adds warnings.
struct CheckedConfig {
  Config& config;
  const std::string& text;                // of the file
  int ranks = 0;                          // of this host; 0: unknown
  const std::vector<std::string>& words;  // the command line
};
std::string check_training(const CheckedConfig& checked, std::vector<std::string>& warnings);
ExitCode run_config_show(const ConfigOptions& options, Console& console);
ExitCode run_config_check(const ConfigOptions& options, Console& console);
ExitCode run_config_import(const ConfigOptions& options, Console& console);

struct ConfigExplainOptions {
  std::string key;        // or a section, or another trainer's name; empty: all keys
  bool markdown = false;  // the reference in docs/config.md
};
ExitCode run_config_explain(const ConfigExplainOptions& options, Console& console);

struct ConfigNewOptions {
  std::string preset, hf;  // one of them
  std::string output;      // empty: standard output
};
ExitCode run_config_new(const ConfigNewOptions& options, Console& console);

struct ConvertCommand {
  std::string source, output;  // folders
  std::string to;              // hf, nanotron
  std::string dtype;           // empty: that of the source
  int tp = 1, pp = 1;          // of a nanotron checkpoint
  std::string layout = "code";
};
int run_convert(const ConvertCommand& command, Console& console);

struct ReshapeCommand {
  std::string checkpoint;  // or the folder of a run
  std::string to;          // "tp=1,pp=2"
  std::string output;      // folder
  std::string version;     // "trireme 0.1.0"
};
int run_reshape(const ReshapeCommand& command, Console& console);

struct TrainCommand {
  std::string file;
  config::Settings overrides;      // --a.b value
  int ranks = 0;                   // on this host; 0: not given
  std::string master;              // HOST:PORT
  int max_restarts = 0;            // of the ranks that are started here
  bool requeue = false;            // SIGUSR1 stops the run
  bool dry_run = false;            // nothing is started or written
  std::vector<std::string> words;  // the whole command line, for starting ranks with it
  std::string version;             // "trireme 0.1.0"
  std::string run_folder;          // set if a launcher has already created it
  std::string config_copy;         // the config file as a launcher has read it; empty: none has
  std::string config_text;         // its contents
  int terminal_width = 0;          // of the terminal that shows rank 0's output; 0: not a terminal
  bool terminal_color = false;
};
/// Returns the exit code of the job.
int run_train(const TrainCommand& command, Console& console);

struct VerifyCommand {
  std::string file;
  config::Settings overrides;  // --a.b value
  int ranks = 0;               // 0: as many as the layout needs, or those of a launcher
  std::string against;         // "tp=2,pp=1"; empty: one rank
  int steps = 2;
  std::string dtype = "float64";
  bool json = false;
  std::vector<std::string> words;  // the whole command line
};
/// 0: the layout agrees; 1: it does not.
int run_verify(const VerifyCommand& command, Console& console);

struct GenerateCommand {
  std::string checkpoint;  // or the folder of a run, or a Hugging Face folder
  std::string prompt, prompts_file;
  std::int64_t tokens = 128;
  double temperature = 0, top_p = 1, repetition_penalty = 1;
  std::int64_t top_k = 0;
  std::vector<std::string> stop;
  std::uint64_t seed = 0;
  int tp = 1, pp = 1;
  int batch = 16;  // prompts of a file at a time
  std::string dtype = "auto", tokenizer, system;
  bool no_cache = false, json = false, chat = false;
  std::vector<std::string> words;  // the whole command line
};
int run_generate(const GenerateCommand& command, Console& console);

struct EvaluateCommand {
  std::string checkpoint;          // or the folder of a run, or a Hugging Face folder
  std::vector<std::string> files;  // of tokens
  std::int64_t seq_len = 0;        // 0: that of the run, or the model's longest up to 1,024
  std::int64_t samples = 0;        // 0: all
  std::int64_t micro_batch_size = 1;
  int dp = 1, tp = 1, pp = 1, cp = 1, zero = 1;
  std::string dtype = "auto", tokenizer;
  bool json = false;
  std::vector<std::string> words;  // the whole command line
};
int run_evaluate(const EvaluateCommand& command, Console& console);

struct LaunchCommand {
  int ranks = 0;  // on this host; 0: not given
  int num_nodes = 1, node_rank = 0;
  std::string master;    // HOST:PORT
  std::string hostfile;  // start ranks on these hosts, through `ssh`
  std::string ssh = "ssh -o BatchMode=yes";
  std::string logs;  // folder for the ranks' output; empty: a new one under runs/
  int threads = 0;
  int max_restarts = 0;
  int attempt = 0;                     // counted by a parent launcher
  int world_size = 0, first_rank = 0;  // for hosts with different numbers of ranks
  bool control_stdin = false;          // stdin is a lifeline from a parent launcher
  std::vector<std::string> program;
  std::vector<std::string> words;  // the whole command line
};
/// Returns the exit code of the job, which need not be one of ours.
int run_launch(const LaunchCommand& command, Console& console);

struct DoctorCommand {
  bool json = false;
  bool quick = false;              // without the all-reduce
  std::vector<std::string> words;  // the whole command line
};
ExitCode run_doctor(const DoctorCommand& command, Console& console);

struct PlanCommand {
  std::string file;            // empty: flags only
  config::Settings overrides;  // --a.b value
  int gpus = 0, per_host = 0;  // per_host 0: that of the GPU
  std::string gpu = "h100";
  std::string machine_file;  // instead of gpu: of `trireme bench machine`
  std::string software = "trireme";
  double network_gb_s = 0, gpu_memory_gb = 0;  // 0: those of the GPU
  double mtbf_hours = 50'000;                  // of a GPU
  double tokens_per_step = 0, tokens = 0;      // 0: not given
  std::string layout;                          // "dp2.tp2": only this one
  std::string output, svg;                     // files; empty: none
  int count = 8;
  bool json = false;
};
ExitCode run_plan(const PlanCommand& command, Console& console);

struct ReportOptions {
  std::vector<std::string> runs;  // folders, one to three
  std::string output;             // empty: report.html in the first run
  bool watch = false;             // write it again while a run goes on
  int interval_s = 5;
  bool open = false;     // show it
  std::string timeline;  // output file: the traced steps as SVG, instead of the page; empty: none
  std::string version;   // "trireme 0.1.0"
};
ExitCode run_report(const ReportOptions& options, Console& console);
/// The part of the doctor's report that requires libtorch; `words`: the command line, for a program that has none.
std::vector<std::vector<std::string>> libtorch_report(const std::vector<std::string>& words);

/// Parses the arguments, runs the command, prints errors; returns the exit code of the process.
int run_command_line(int argc, const char* const* argv, Console& console);
/// The same with the streams of this process: all that main() does.
int run_main(int argc, char** argv);

}  // namespace trireme::cli
