#include "trireme/cli/run_program.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.hpp"

extern char** environ;

namespace trireme::cli {
namespace {

/// The environment without what a launcher (torchrun, srun, mpirun, Kubernetes, `trireme launch`) tells its ranks: the
/// program is started as a job of its own, and must not take this process's place in another.
std::vector<char*> environment_without_launcher() {
  std::vector<char*> out;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view word = *variable;
    const bool launchers = std::ranges::any_of(std::array{"RANK=",
                                                          "WORLD_SIZE=",
                                                          "LOCAL_",
                                                          "GROUP_",
                                                          "ROLE_",
                                                          "NODE_RANK=",
                                                          "MASTER_",
                                                          "TORCHELASTIC_",
                                                          "PET_",
                                                          "SLURM_",
                                                          "OMPI_",
                                                          "PMI_",
                                                          "PMIX_",
                                                          "PALS_",
                                                          "MPI_",
                                                          "MV2_",
                                                          "JOB_COMPLETION_INDEX=",
                                                          "TRIREME_JOB_ID=",
                                                          "TRIREME_ATTEMPT=",
                                                          "TRIREME_SECRET=",
                                                          "TRIREME_LAUNCH",
                                                          "TRIREME_LIFELINE_FD=",
                                                          "TRIREME_BLACK_BOX_FD=",
                                                          "TRIREME_START_ID=",
                                                          "TRIREME_HANG_FOLDER="},
                                               [&](const char* start) { return word.starts_with(start); });
    if (!launchers) out.push_back(*variable);
  }
  out.push_back(nullptr);
  return out;
}

}  // namespace

int run_own_program(const std::vector<std::string>& words, const std::filesystem::path& log) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  std::vector<char*> environment = environment_without_launcher();
  pid_t child = 0;
  const int failed = ::posix_spawn(&child, program.c_str(), &actions, nullptr, argv.data(), environment.data());
  ::posix_spawn_file_actions_destroy(&actions);
  require<ConfigError>(failed == 0, program, ", with its output in ", log.string(), ": ", errno_text(failed));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace trireme::cli
