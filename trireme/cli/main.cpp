// Entry point of the command line program: see command_line.cpp.
#include <exception>

#include "trireme/base/process_end.hpp"
#include "trireme/base/process_limits.hpp"
#include "trireme/cli/commands.hpp"

namespace {

// libtorch allocates while it is loaded, before main(): a small `ulimit -v` must not end in std::terminate alone.
void before_libraries(int, char**, char**) { std::set_terminate(trireme::terminate_with_limit); }
[[gnu::section(".preinit_array"), gnu::used]] void (*const kBeforeLibraries)(int, char**, char**) = before_libraries;

}  // namespace

int main(int argc, char** argv) { trireme::end_process(trireme::cli::run_main(argc, argv)); }
