#pragma once
// Batches that a thread reads before they are asked for.
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "trireme/module/dataset.hpp"

namespace trireme {

/// Reads the steps `first` to `end` - 1 in order, each once, at most `ahead` of those that nobody has taken. The thread
/// has the gradient mode, autocast, GPU and stream of the one that made it.
class ReadAhead {
 public:
  using Read = std::function<Samples(std::int64_t step)>;
  ReadAhead(Read read, std::int64_t first, std::int64_t end, std::int64_t ahead);
  /// Waits for the batch that is being read.
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// The batch of a step, or what read() has thrown for it. Steps may be left out; a step up to one that was taken is
  /// read anew.
  Samples take(std::int64_t step);

 private:
  struct Batch {
    Samples samples;
    std::exception_ptr failure;
  };
  void run();

  const Read read_;
  const std::int64_t end_, ahead_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::map<std::int64_t, Batch> ready_;
  std::int64_t next_;   // that the thread reads
  std::int64_t taken_;  // steps before it were taken, or left out
  bool ends_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace trireme
