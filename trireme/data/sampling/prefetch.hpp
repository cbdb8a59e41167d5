#pragma once
// Makes the next batches while the current one is trained on.
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

/// Microbatches in the order in which a step takes them, made ahead by one thread: (1, 0), (1, 1), ..., (2, 0), ...
/// One thread makes more than enough (bench/data_bench.cpp), and one keeps the order. For one caller.
class Prefetch {
 public:
  /// Writes microbatch `microbatch` of `step` into `out`, whose memory may have been used before. Called from another
  /// thread, one call at a time.
  using Make = std::function<void(std::int64_t step, std::int64_t microbatch, TokenBatch& out)>;

  /// Keeps up to `depth` batches ready. Steps have `num_microbatches` each; the first asked for is expected to be
  /// (first_step, 0).
  Prefetch(Make make, std::int64_t num_microbatches, std::int64_t first_step = 1, std::size_t depth = 2);
  /// Waits for the batch that is being made, if any, and for no other.
  ~Prefetch();

  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  /// That microbatch. Where it is not the one behind the last (a run that goes on at another step), what was made ahead
  /// is dropped. An exception of `make` comes out of the call for its batch, and of no other.
  TokenBatch take(std::int64_t step, std::int64_t microbatch);

  /// Gives the memory of a batch back, to make another one in.
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

  std::mutex mutex_;  // of all below
  std::condition_variable_any changed_;
  Turn next_taken_, next_made_;
  std::int64_t jumps_ = 0;  // a batch that was begun before the last jump is dropped
  std::deque<Made> ready_;
  std::vector<TokenBatch> spare_;

  std::jthread thread_;  // last: it uses the rest, and is joined before the rest goes
};

}  // namespace trireme::data
