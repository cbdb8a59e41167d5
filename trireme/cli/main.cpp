// The words a person types: see command_line.cpp.
#include <cstdlib>
#include <iostream>

#include <unistd.h>

#include "trireme/cli/commands.hpp"

int main(int argc, char** argv) {
  trireme::Console console{std::cout, std::cerr,
                           trireme::terminal_facts(STDOUT_FILENO, std::getenv("NO_COLOR"), std::getenv("TERM"))};
  return trireme::run_command_line(argc, argv, console);
}
