// `trireme launch`, in a build without libtorch.
#include "trireme/cli/commands.hpp"

namespace trireme::cli {

int run_launch(const LaunchCommand& /*command*/, Console& /*console*/) {
  throw ConfigError(
      "launch: this build has no libtorch, and with it no store for ranks to meet in\n  fix: build with "
      "-DTRIREME_WITH_TORCH=ON");
}

}  // namespace trireme::cli
