// Entry point of the command line program: see command_line.cpp.
#include <cstdlib>
#include <exception>
#include <iostream>

#include <unistd.h>

#include "trireme/base/process_limits.hpp"
#include "trireme/base/process_start.hpp"
#include "trireme/cli/commands.hpp"

namespace {

// libtorch allocates while it is loaded, before main(): a small `ulimit -v` must not end in std::terminate alone.
void before_libraries(int, char**, char**) { std::set_terminate(trireme::terminate_with_limit); }
[[gnu::section(".preinit_array"), gnu::used]] void (*const kBeforeLibraries)(int, char**, char**) = before_libraries;

}  // namespace

int main(int argc, char** argv) {
  trireme::prepare_process();
  const auto facts = [](int fd) { return trireme::terminal_facts(fd, std::getenv("NO_COLOR"), std::getenv("TERM")); };
  trireme::cli::Console console{std::cout, std::cerr, facts(STDOUT_FILENO), facts(STDERR_FILENO)};
  return trireme::cli::run_command_line(argc, argv, console);
}
