#pragma once
// How a group of commands (`trireme data ...`) tells the command line which of them was given.
#include <functional>
#include <memory>

#include <CLI/CLI.hpp>

#include "trireme/cli/commands.hpp"

namespace trireme::cli {

/// Takes what runs the command that was given.
using Chosen = std::function<void(std::function<int(Console&)>)>;

/// `cmd`, with the options that it has put into `command`, is run by `run`, which returns the exit code.
template <class Command>
void runs(CLI::App& cmd, const Chosen& chosen, const std::shared_ptr<Command>& command,
          int (*run)(const Command&, Console&)) {
  cmd.callback([command, chosen, run] { chosen([command, run](Console& console) { return run(*command, console); }); });
}

}  // namespace trireme::cli
