#pragma once
// Starts this program again, with other arguments.
#include <filesystem>
#include <string>
#include <vector>

namespace trireme::cli {

/// Waits for it; its output goes to a new file `log`. Returns its exit code, 128 + the signal that killed it. A stop
/// signal to this process reaches it too, as it is in the same process group. ConfigError if it cannot be started.
int run_own_program(const std::vector<std::string>& words, const std::filesystem::path& log);

}  // namespace trireme::cli
