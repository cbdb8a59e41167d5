#pragma once
// What a rank prints: into its log, and for some ranks to our own output too, byte for byte as it comes.
#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/runtime/launcher/owned_fd.hpp"
#include "trireme/runtime/launcher/rank_process.hpp"

namespace trireme::launcher {

/// Our output, which may be a terminal that is stopped or a pipe that nobody reads: a launcher must not wait for it.
class EchoQueue {
 public:
  explicit EchoQueue(int fd) : fd_(fd) {}

  void add(std::string_view bytes) {
    if (!broken_) pending_ += bytes;
  }
  int fd() const { return fd_; }
  bool waiting() const { return sent_ < pending_.size(); }
  /// Its writers have to wait.
  bool full() const { return pending_.size() - sent_ > kFull; }
  /// Only once poll has said that the descriptor takes something.
  void write_some();
  void drop() {
    pending_.clear();
    sent_ = 0;
  }

 private:
  static constexpr std::size_t kFull = 1 << 20;
  int fd_;
  std::string pending_{};
  std::size_t sent_ = 0;  // of pending_
  bool broken_ = false;   // the reader is gone; the logs go on
};

/// Whether two descriptors are of one file, pipe or terminal.
bool same_file(int fd, int other);

class RankOutput {
 public:
  using Tell = std::function<void(const std::string&)>;
  struct Source {
    OwnedFd fd;
    EchoQueue* echo;  // null: none
  };

  /// `log_file` empty: none; ConfigError if it cannot be opened. `out`, `err`: null, or where to copy the rank's two.
  /// One pipe for both unless they are copied to different places: only then can the order of two writes, one to each,
  /// be lost in the log, if they come within one turn of the launcher's loop.
  RankOutput(const std::string& log_file, EchoQueue* out, EchoQueue* err);

  int child_stdout() const { return write_ends_[0].get(); }
  int child_stderr() const { return (write_ends_[1] ? write_ends_[1] : write_ends_[0]).get(); }
  /// Once the rank has them.
  void close_write_ends();

  std::vector<Source>& sources() { return sources_; }
  /// Reads once. `tell` hears of a log that cannot be written; the rank goes on.
  void read_some(Source& source, const Tell& tell);
  /// What is there, not what may still come from a child of the rank that holds the pipe open.
  void drain_and_close(const Tell& tell);

  /// The last lines, `most` at most.
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
