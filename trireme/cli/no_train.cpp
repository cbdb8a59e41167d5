// `trireme train`, in a build without libtorch.
#include "trireme/cli/commands.hpp"

namespace trireme::cli {

int run_train(const TrainCommand& /*command*/, Console& /*console*/) {
  throw ConfigError("train: this build has no libtorch to train with\n  fix: build with -DTRIREME_WITH_TORCH=ON");
}

}  // namespace trireme::cli
