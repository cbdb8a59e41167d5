#pragma once
// A command that runs beside us: started without a shell, asked about without blocking, stopped when nobody wants it.
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace trireme {

struct CommandEnd {
  bool ok;          // exit status 0
  std::string how;  // "exit status 3: <the last line it printed>", "killed by signal 9"
};

/// Reads nothing (stdin is /dev/null) and prints nothing (its output is kept for CommandEnd). It has a process group of
/// its own: stopping it stops its children too, and Ctrl-C in the terminal does not reach it.
class BackgroundCommand {
 public:
  /// `argv[0]` is looked for in the PATH. ConfigError if it cannot be started.
  explicit BackgroundCommand(const std::vector<std::string>& argv);
  /// Stops it if it still runs.
  ~BackgroundCommand();
  BackgroundCommand(const BackgroundCommand&) = delete;
  BackgroundCommand& operator=(const BackgroundCommand&) = delete;

  /// How it ended; nothing while it runs.
  std::optional<CommandEnd> poll();

  /// As poll, waiting at most that long.
  std::optional<CommandEnd> wait_for(std::chrono::milliseconds limit);

  /// SIGTERM, then SIGKILL; takes two seconds at most, even if the command is stuck inside the kernel.
  void stop();

 private:
  std::string last_line() const;

  int output_fd_ = -1;
  pid_t pid_ = -1;
  std::optional<CommandEnd> end_{};
};

}  // namespace trireme
