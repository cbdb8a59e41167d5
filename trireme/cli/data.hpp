#pragma once
// The `trireme data ...` commands: their options (data_options.cpp) and their implementation (data.cpp, data_sets.cpp).
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trireme/cli/commands.hpp"
#include "trireme/cli/progress_line.hpp"
#include "trireme/data/tokens/token_writer.hpp"

namespace CLI {
class App;
}

namespace trireme::cli {

/// Runs `work`, which polls StopSignals. If a signal stopped it, returns its exit code: 130 after Ctrl-C, else 75.
int until_stopped(Console& console, const std::function<void()>& work);

/// Hooks that show progress on `line` and poll StopSignals.
data::DataHooks hooks_of(ProgressLine& line);
/// ConfigError for an unknown --format.
data::TokenFormat format_of(const std::string& name);
/// ConfigError if a file of `outputs` exists and --overwrite was not given: before any work is done.
void check_overwrite(const std::vector<std::filesystem::path>& outputs, bool overwrite);

/// Text input options of `prepare` and `train-bpe`.
struct TextOptions {
  std::vector<std::string> inputs, include, exclude;
  std::string key = "text", documents = "file", chat_template = "auto";
  bool chat = false, skip_bad = false, quiet = false;
  int workers = 0;
};

struct TrainBpeCommand {
  TextOptions text;
  std::string output, pattern = "llama3";
  std::int64_t vocab_size = 32'000;
  std::vector<std::string> special;
  std::uint64_t min_frequency = 0;
  bool overwrite = false;
};
int run_data_train_bpe(const TrainBpeCommand& command, Console& console);

struct PrepareCommand {
  TextOptions text;
  std::string output, tokenizer, tokenizer_name, format = "datatrove", pattern = "llama3";
  std::int64_t train_bpe = 0;  // 0: no
  bool append_eod = true, shuffle = false, overwrite = false;
  std::uint64_t seed = 0;
  double validation = 0;
};
int run_data_prepare(const PrepareCommand& command, Console& console);

struct InspectCommand {
  std::string path, tokenizer;
  std::int64_t documents = 3;
};
int run_data_inspect(const InspectCommand& command, Console& console);

struct MergeCommand {
  std::vector<std::string> inputs;
  std::string output, tokenizer, format = "datatrove";
  bool force = false, overwrite = false, quiet = false;
};
int run_data_merge(const MergeCommand& command, Console& console);

/// Adds `data` and its subcommands; `chosen` receives the command to run.
void add_data(CLI::App& app, const std::function<void(std::function<int(Console&)>)>& chosen);

}  // namespace trireme::cli
