#pragma once
// What `trireme --version` says about this build.
#include <string>

namespace trireme::cli {

/// "trireme 0.1.0", then a line each: commit, compiler, libtorch.
std::string build_facts();

}  // namespace trireme::cli
