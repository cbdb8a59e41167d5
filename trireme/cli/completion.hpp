#pragma once
// Completion of the command line in bash, zsh and fish, from the table of commands and options that parses it.
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace trireme::cli {

/// The command of this name directly below `app`; nullptr if there is none.
const CLI::App* inner_command(const CLI::App& app, const std::string& name);

/// A script for `source <(trireme completion SHELL)` that asks `program completion --words -- WORD...`. ConfigError for
/// another shell.
std::string completion_script(const std::string& shell, const std::string& program);

/// What may stand in the place of the last of `words`, which may be empty: commands, options, config keys, and values
/// where they are known. Empty: a file, or anything. `settings`: commands that take --section.key.
std::vector<std::string> completions(const CLI::App& app, const std::vector<std::string>& settings,
                                     const std::vector<std::string>& words);

}  // namespace trireme::cli
