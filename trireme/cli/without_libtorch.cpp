// The commands that need libtorch, in a build without it.
#include "trireme/cli/commands.hpp"

namespace trireme::cli {
namespace {

[[noreturn]] void refuse(const char* command) {
  throw ConfigError(text(command, ": this build has no libtorch\n  fix: build with -DTRIREME_WITH_TORCH=ON"));
}

}  // namespace

int run_train(const TrainCommand& /*command*/, Console& /*console*/) { refuse("train"); }

int run_launch(const LaunchCommand& /*command*/, Console& /*console*/) { refuse("launch"); }

std::vector<std::vector<std::string>> libtorch_report(const std::vector<std::string>& /*words*/) {
  return {{"libtorch", "not in this build", "it draws schedules and checks configs, and trains nothing"}};
}

}  // namespace trireme::cli
