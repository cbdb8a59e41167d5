#pragma once
// Captures the output of a rank: writes it to its log, and for some ranks also to our own output, unmodified.
#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/owned_fd.hpp"
#include "trireme/runtime/launcher/rank_process.hpp"

namespace trireme::launcher {

// Note [A reader that does not read]
// Our own output may be a stopped terminal (Ctrl-S), a hung ssh, or a pipe that nobody reads. A slow reader gets
// everything: the writers wait for it. One that has read nothing for kPatience must not stop a training: from then on
// output is dropped, until it reads again; then it is told how much. When all ranks have ended, a reader that reads
// nothing for SupervisorOptions::last_patience is not waited for any longer. The logs are always complete.

/// Non-blocking queue for our own output: a launcher must not block on it.
class EchoQueue {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPatience{2000};

  explicit EchoQueue(int fd) : fd_(fd) {}

  void add(std::string_view bytes);
  int fd() const { return fd_; }
  bool waiting() const { return sent_ < pending_.size(); }
  /// Backpressure: its writers have to wait, until this time at most. nullopt: they need not.
  std::optional<Clock::time_point> full_until() const;
  /// When the reader will have read nothing for so long. nullopt: there is nothing to read.
  std::optional<Clock::time_point> unread_until(std::chrono::milliseconds patience) const {
    return waiting() ? std::optional(progress_ + patience) : std::nullopt;
  }
  /// Only after poll has reported the descriptor as writable.
  void write_some();
  void drop() {
    pending_.clear();
    sent_ = 0;
  }

 private:
  static constexpr std::size_t kFull = 1 << 20;
  bool is_full() const { return pending_.size() - sent_ > kFull; }

  int fd_;
  std::string pending_{};
  std::size_t sent_ = 0;                       // bytes of pending_ already written
  bool broken_ = false;                        // the reader is gone; the logs continue
  Clock::time_point progress_ = Clock::now();  // of the reader: the last write, or when the queue was last empty
  std::size_t dropped_ = 0;                    // bytes since then
};

/// Whether two descriptors refer to the same file, pipe or terminal.
bool same_file(int fd, int other);

class RankOutput {
 public:
  using Tell = std::function<void(const std::string&)>;
  struct Source {
    OwnedFd fd;
    EchoQueue* echo;  // null: none
  };

  /// `log_file` empty: none; ConfigError if it cannot be opened. `out`, `err`: null, or where to copy the rank's stdout
  /// and stderr. Both share one pipe unless they are copied to different places: only then can the log lose the order
  /// of writes to the two, if they arrive within one iteration of the launcher's loop.
  RankOutput(const std::string& log_file, EchoQueue* out, EchoQueue* err);

  int child_stdout() const { return write_ends_[0].get(); }
  int child_stderr() const { return (write_ends_[1] ? write_ends_[1] : write_ends_[0]).get(); }
  /// Call after the rank has inherited them.
  void close_write_ends();

  std::vector<Source>& sources() { return sources_; }
  /// Reads once. `tell` is called if the log cannot be written; the rank continues.
  void read_some(Source& source, const Tell& tell);
  /// Reads what is available, without waiting for a child of the rank that holds the pipe open.
  void drain_and_close(const Tell& tell);

  /// The last lines, at most `most`.
  std::vector<std::string> last_lines(std::size_t most) const;

 private:
  /// False at the end of the pipe.
  bool read_up_to(Source& source, std::size_t size, const Tell& tell);
  void keep(std::string_view bytes, const Tell& tell);

  std::string log_file_;
  OwnedFd log_{};
  std::array<OwnedFd, 2> write_ends_{};
  std::vector<Source> sources_{};
  std::string tail_{};
};

}  // namespace trireme::launcher
