#include <cstdlib>
#include <iostream>

#include <unistd.h>

#include "trireme/base/process_start.hpp"
#include "trireme/cli/commands.hpp"

namespace trireme::cli {

int run_main(int argc, char** argv) {
  prepare_process();
  const auto facts = [](int fd) { return terminal_facts(fd, std::getenv("NO_COLOR"), std::getenv("TERM")); };
  Console console{std::cout, std::cerr, facts(STDOUT_FILENO), facts(STDERR_FILENO)};
  return run_command_line(argc, argv, console);
}

}  // namespace trireme::cli
