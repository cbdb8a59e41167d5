#pragma once
// The command that was given, and the commands that can be: each adds itself to the command line, and says what to run.
#include <functional>
#include <string>
#include <vector>

#include "trireme/cli/model_options.hpp"

namespace trireme::cli {

/// Settings (--section.key VALUE) are removed before CLI11 sees the rest: their names are those of the config, which
/// checks them.
struct Choice {
  std::function<int(Console&)> run;  // returns the exit code
  bool output_is_optional = false;   // whether it has done its work even if its output could not be written
  CommandWords words;
  std::vector<std::string> program;  // arguments after --
};

inline int number(ExitCode code) { return static_cast<int>(code); }

void add_config(CLI::App& app, Choice& choice);   // config_options.cpp
void add_convert(CLI::App& app, Choice& choice);  // weights_options.cpp
void add_reshape(CLI::App& app, Choice& choice);
void add_train(CLI::App& app, Choice& choice);  // run_options.cpp
void add_launch(CLI::App& app, Choice& choice);
void add_report(CLI::App& app, Choice& choice);

}  // namespace trireme::cli
