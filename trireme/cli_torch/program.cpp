#include "trireme/cli_torch/program.hpp"

#include <tuple>

#include "trireme/cli/bench.hpp"
#include "trireme/cli/commands.hpp"

namespace trireme {
namespace {

// A linker takes from a static library what something before it needs, and the library that calls these comes later.
[[gnu::used]] const auto kCommandsWithLibtorch = std::make_tuple(&cli::run_train, &cli::run_launch, &cli::run_bench_fit,
                                                                 &cli::check_training, &cli::libtorch_report);

}  // namespace

int run_program(int argc, char** argv) { return cli::run_main(argc, argv); }

}  // namespace trireme
