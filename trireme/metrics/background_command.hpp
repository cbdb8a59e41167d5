#pragma once
// A child process in the background: started without a shell, polled without blocking, stopped on destruction.
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace trireme::metrics {

struct CommandEnd {
  bool ok;          // exit status 0
  std::string how;  // "exit status 3: <the last line of its output>", "killed by signal 9"
};

/// stdin is /dev/null, output is captured for CommandEnd. The child has its own process group: stopping it also stops
/// its children, and Ctrl-C in the terminal does not reach it.
class BackgroundCommand {
 public:
  /// `argv[0]` is looked up in PATH. Throws ConfigError if it cannot be started.
  explicit BackgroundCommand(const std::vector<std::string>& argv);
  /// Stops the command if it is still running.
  ~BackgroundCommand();
  BackgroundCommand(const BackgroundCommand&) = delete;
  BackgroundCommand& operator=(const BackgroundCommand&) = delete;

  /// How it ended; nullopt while it is running.
  std::optional<CommandEnd> poll();

  /// Like poll, but waits up to `limit`.
  std::optional<CommandEnd> wait_for(std::chrono::milliseconds limit);

  /// SIGTERM, then SIGKILL; takes at most two seconds, even if the command is stuck in the kernel.
  void stop();

 private:
  std::string last_line() const;

  int output_fd_ = -1;
  pid_t pid_ = -1;
  std::optional<CommandEnd> end_{};
};

}  // namespace trireme::metrics
