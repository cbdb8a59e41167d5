// Entry point of the command line program: see command_line.cpp.
#include <cstdlib>
#include <iostream>

#include <unistd.h>

#include "trireme/cli/commands.hpp"

int main(int argc, char** argv) {
  const auto facts = [](int fd) { return trireme::terminal_facts(fd, std::getenv("NO_COLOR"), std::getenv("TERM")); };
  trireme::cli::Console console{std::cout, std::cerr, facts(STDOUT_FILENO), facts(STDERR_FILENO)};
  return trireme::cli::run_command_line(argc, argv, console);
}
