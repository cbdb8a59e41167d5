#pragma once
// The options of the commands that run a model.
#include <string>
#include <vector>

#include "trireme/cli/command_group.hpp"
#include "trireme/config/schema/setting.hpp"

namespace trireme::cli {

/// The command line, known when a command is chosen.
struct CommandWords {
  std::vector<std::string> all;  // argv
  config::Settings overrides;    // --section.key VALUE, which are not among the options
};

void add_plan(CLI::App& app, const CommandWords& words, const Chosen& chosen);
void add_model_commands(CLI::App& app, const CommandWords& words, const Chosen& chosen);

}  // namespace trireme::cli
