// The libtorch section of `trireme doctor`, in a build without libtorch.
#include "trireme/cli/commands.hpp"

namespace trireme::cli {

std::vector<std::vector<std::string>> libtorch_report() {
  return {{"libtorch", "not in this build", "it draws schedules and checks configs, and trains nothing"}};
}

}  // namespace trireme::cli
