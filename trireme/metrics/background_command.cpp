#include "trireme/metrics/background_command.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.hpp"

namespace trireme::metrics {
namespace {

using std::chrono::milliseconds;

/// Owns the file actions and attributes for posix_spawn.
struct SpawnPlan {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;

  explicit SpawnPlan(int output_fd) {
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&files, output_fd, STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&files, output_fd, STDERR_FILENO);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    // A thread of ours may block or ignore these; a child that inherits that could not be stopped.
    sigset_t set;
    ::sigemptyset(&set);
    ::posix_spawnattr_setsigmask(&attributes, &set);
    for (const int signal : {SIGTERM, SIGINT, SIGPIPE, SIGCHLD}) ::sigaddset(&set, signal);
    ::posix_spawnattr_setsigdefault(&attributes, &set);
  }
  ~SpawnPlan() {
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&files);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
};

}  // namespace

BackgroundCommand::BackgroundCommand(const std::vector<std::string>& argv) {
  require<ConfigError>(!argv.empty(), "a command to run in the background is empty");
  std::vector<char*> words;
  words.reserve(argv.size() + 1);
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));  // posix_spawn only reads them
  words.push_back(nullptr);
  output_fd_ = ::memfd_create("output of a background command", MFD_CLOEXEC);
  require<ConfigError>(output_fd_ >= 0, "no memory for the output of \"", argv[0], "\": ", errno_text(errno));
  const SpawnPlan plan(output_fd_);
  const int error = ::posix_spawnp(&pid_, words[0], &plan.files, &plan.attributes, words.data(), environ);
  if (error == 0) return;
  ::close(output_fd_);
  throw ConfigError(text("command \"", argv[0], "\" cannot be started: ", errno_text(error)));
}

BackgroundCommand::~BackgroundCommand() {
  stop();
  ::close(output_fd_);
}

std::optional<CommandEnd> BackgroundCommand::poll() {
  if (end_) return end_;
  int status = 0;
  const pid_t reaped = ::waitpid(pid_, &status, WNOHANG);
  if (reaped == 0 || (reaped < 0 && errno == EINTR)) return std::nullopt;
  if (reaped < 0) {  // it was already reaped elsewhere, or SIGCHLD is ignored
    end_ = CommandEnd{false, "its exit status was lost"};
  } else if (WIFSIGNALED(status)) {
    end_ = CommandEnd{false, text("killed by signal ", WTERMSIG(status))};
  } else {
    const std::string line = WEXITSTATUS(status) == 0 ? "" : last_line();
    end_ =
        CommandEnd{WEXITSTATUS(status) == 0, text("exit status ", WEXITSTATUS(status), line.empty() ? "" : ": ", line)};
  }
  return end_;
}

std::optional<CommandEnd> BackgroundCommand::wait_for(milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  // Polling instead of SIGCHLD: a signal handler would affect the whole program.
  while (!poll() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(milliseconds(5));
  return poll();
}

void BackgroundCommand::stop() {
  for (const int signal : {SIGTERM, SIGKILL}) {
    if (poll()) return;
    ::kill(-pid_, signal);
    wait_for(milliseconds(1000));
  }
}

std::string BackgroundCommand::last_line() const {
  std::array<char, 400> buffer;
  struct stat facts{};
  ::fstat(output_fd_, &facts);
  const off_t from = std::max<off_t>(0, facts.st_size - static_cast<off_t>(buffer.size()));
  const ssize_t size = ::pread(output_fd_, buffer.data(), buffer.size(), from);
  std::string tail(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(0, size)));
  tail.erase(tail.find_last_not_of(" \r\n\t") + 1);
  return tail.substr(tail.find_last_of("\r\n") + 1);  // npos + 1 is 0: all of it
}

}  // namespace trireme::metrics
