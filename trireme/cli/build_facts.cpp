#include "trireme/cli/build_facts.hpp"

#include <string_view>

#include "trireme/base/error.hpp"

extern const char trireme_commit[];  // generated: cmake/commit.cmake

namespace trireme::cli {

std::string build_facts() {
  constexpr std::string_view kTorch = TRIREME_TORCH_VERSION;
  const std::string_view commit = trireme_commit;
#if defined(__clang__)
  constexpr std::string_view kCompiler = __VERSION__;  // begins with its name
#else
  constexpr std::string_view kCompiler = "g++ " __VERSION__;
#endif
  return text("trireme ", TRIREME_VERSION, "\ncommit    ", commit.empty() ? "unknown" : commit, "\ncompiler  ",
              kCompiler, ", ", TRIREME_BUILD_TYPE, "\nlibtorch  ", kTorch.empty() ? "not in this build" : kTorch);
}

}  // namespace trireme::cli
