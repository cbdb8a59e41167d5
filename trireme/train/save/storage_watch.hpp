#pragma once
// Watches the file operations of a thread that they block: no one else can say that the storage does not respond.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "trireme/train/save/stall_watch.hpp"

namespace trireme {

struct StorageWatchOptions {
  StallLimits limits{};
  std::string path{};      // that the operations are about
  std::string on_stall{};  // what has been kept, for the error
  /// From the watching thread, while an operation takes its time, but less than limits.timeout_s.
  std::function<void()> is_alive{};
};

/// During its lifetime a thread warns of operations that take longer than limits.warning_s, and ends the process with
/// exit code 74 after limits.timeout_s: an operation that never returns cannot be left in another way.
class StorageWatch {
 public:
  explicit StorageWatch(StorageWatchOptions options);
  ~StorageWatch();
  StorageWatch(const StorageWatch&) = delete;
  StorageWatch& operator=(const StorageWatch&) = delete;

  /// Runs a file operation.
  template <class Operation>
  void run(Operation operation) {
    progress();
    busy_ = true;
    const Idle at_end{busy_};
    operation();
  }
  /// A part of the operation is done.
  void progress() { ++done_; }

 private:
  struct Idle {
    std::atomic<bool>& busy;
    ~Idle() { busy = false; }
  };
  void look_while_it_lives();

  const StorageWatchOptions options_;
  std::atomic<std::uint64_t> done_ = 0;
  std::atomic<bool> busy_ = false;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace trireme
