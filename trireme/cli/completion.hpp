#pragma once
// Completion of the command line for bash, from the table of commands and options that parses it.
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace trireme::cli {

/// A script for `source <(trireme completion)`. `settings`: commands that take --section.key.
std::string bash_completion(const CLI::App& app, const std::vector<std::string>& settings);

}  // namespace trireme::cli
