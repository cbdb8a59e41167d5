#pragma once
// Prepares the next batches in a background thread while the current one is used for training.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "trireme/data/sampling/batch.hpp"

namespace trireme::data {

/// Microbatches in the order in which training uses them, prepared ahead by one thread: (1, 0), (1, 1), ..., (2, 0),
/// ...
/// One thread is more than fast enough (bench/data_bench.cpp) and keeps the order. Not for concurrent callers.
class Prefetch {
 public:
  /// Writes microbatch `microbatch` of `step` into `out`, whose memory may be reused. Called from the background
  /// thread, one call at a time.
  using Make = std::function<void(std::int64_t step, std::int64_t microbatch, TokenBatch& out)>;

  /// Keeps up to `depth` batches ready. Each step has `num_microbatches`; the first request is expected to be
  /// (first_step, 0).
  Prefetch(Make make, std::int64_t num_microbatches, std::int64_t first_step = 1, std::size_t depth = 2);
  /// Waits for the batch that is being prepared, if any, but for no other.
  ~Prefetch();

  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  /// Returns that microbatch. If it does not follow the previous one (a run that resumes at another step), the
  /// prefetched batches are dropped. An exception of `make` is rethrown only by the call for its batch.
  TokenBatch take(std::int64_t step, std::int64_t microbatch);

  /// Returns the memory of a batch for reuse.
  void recycle(TokenBatch&& batch);

 private:
  struct Turn {
    std::int64_t step, microbatch;
    bool operator==(const Turn&) const = default;
  };
  struct Made {
    TokenBatch batch;
    std::exception_ptr error;
  };

  Turn after(Turn turn) const;
  void work(const std::stop_token& stop);

  const Make make_;
  const std::int64_t num_microbatches_;
  const std::size_t depth_;

  std::mutex mutex_;  // guards everything below
  std::condition_variable_any changed_;
  Turn next_taken_, next_made_;
  std::int64_t jumps_ = 0;  // a batch that was started before the last jump is dropped
  std::deque<Made> ready_;
  std::vector<TokenBatch> spare_;

  std::jthread thread_;  // last member: it uses the others, and is joined before they are destroyed
};

}  // namespace trireme::data
