// The commands that need libtorch, in the program `trireme`: it becomes `trireme-torch`, which has them. Loading
// libtorch takes half a second, and `--help`, `config`, `schedule` and `data` do not need it.
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include <sys/mman.h>
#include <unistd.h>

#include "trireme/cli/bench.hpp"
#include "trireme/cli/commands.hpp"

namespace trireme::cli {
namespace {

/// Threads of OpenMP that wait for work spin, and take the cores that other ranks or programs need: on a busy machine
/// `generate` is 70 times slower for it. The library reads the variable when it is loaded. Who sets one of the two
/// decides.
void let_openmp_wait_passively() {
  if (std::getenv("GOMP_SPINCOUNT") == nullptr) ::setenv("OMP_WAIT_POLICY", "PASSIVE", /*overwrite=*/0);
}

/// Does not return: this process goes on as the other program, with the same arguments, descriptors and environment.
[[noreturn]] void become_torch_program(const std::vector<std::string>& words) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "trireme-torch";
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  let_openmp_wait_passively();
  ::execv(program.c_str(), argv.data());
  throw ConfigError(text(program.string(), ": ", errno_text(errno),
                         "\n  fix: install trireme and trireme-torch in one folder (cmake --install does)"));
}

}  // namespace

int run_train(const TrainCommand& command, Console& /*console*/) { become_torch_program(command.words); }

int run_verify(const VerifyCommand& command, Console& /*console*/) { become_torch_program(command.words); }

int run_generate(const GenerateCommand& command, Console& /*console*/) { become_torch_program(command.words); }

int run_evaluate(const EvaluateCommand& command, Console& /*console*/) { become_torch_program(command.words); }

int run_launch(const LaunchCommand& command, Console& /*console*/) { become_torch_program(command.words); }

int run_bench_comm(const BenchCommCommand& command, Console& /*console*/) { become_torch_program(command.words); }

int run_bench_fit(const BenchFitCommand& command, Console& /*console*/) { become_torch_program(command.words); }

/// A config with an error does not come this far: that is told at once.
std::string check_training(const CheckedConfig& checked, std::vector<std::string>& /*warnings*/) {
  // A file without a name, which the other program inherits.
  const int fd = ::memfd_create("config", 0);
  const auto size = static_cast<ssize_t>(checked.text.size());
  require<ConfigError>(fd >= 0 && ::write(fd, checked.text.data(), checked.text.size()) == size,
                       "no memory for a copy of the config: ", errno_text(errno));
  std::vector<std::string> words = checked.words;
  words.insert(words.end(), {"--config-copy", text("/proc/self/fd/", fd)});
  become_torch_program(words);
}

std::vector<std::vector<std::string>> libtorch_report(const std::vector<std::string>& words) {
  become_torch_program(words);
}

}  // namespace trireme::cli
