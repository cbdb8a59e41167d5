#include "trireme/data/sampling/prefetch.hpp"

#include <utility>

#include "trireme/base/error.hpp"

namespace trireme::data {

Prefetch::Prefetch(Make make, std::int64_t num_microbatches, std::int64_t first_step, std::size_t depth)
    : make_(std::move(make)),
      num_microbatches_(num_microbatches),
      depth_(depth),
      next_taken_{first_step, 0},
      next_made_{first_step, 0} {
  require<ConfigError>(num_microbatches >= 1, "prefetch of ", num_microbatches, " microbatches a step: at least 1");
  require<ConfigError>(depth >= 1, "prefetch of ", depth, " batches ahead: must be at least 1");
  thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
}

Prefetch::~Prefetch() = default;

Prefetch::Turn Prefetch::after(Turn turn) const {
  if (turn.microbatch + 1 < num_microbatches_) return {turn.step, turn.microbatch + 1};
  return {turn.step + 1, 0};
}

void Prefetch::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  // wait() returns false if it ended because of a stop request, which jthread's destructor makes.
  while (changed_.wait(lock, stop, [&] { return ready_.size() < depth_; }) && !stop.stop_requested()) {
    const Turn turn = next_made_;
    const std::int64_t jumps = jumps_;
    Made made;
    if (!spare_.empty()) {
      made.batch = std::move(spare_.back());
      spare_.pop_back();
    }
    lock.unlock();
    try {
      make_(turn.step, turn.microbatch, made.batch);
    } catch (...) {
      made.error = std::current_exception();
    }
    lock.lock();
    if (jumps != jumps_) continue;
    next_made_ = after(turn);
    ready_.push_back(std::move(made));
    changed_.notify_all();
  }
}

TokenBatch Prefetch::take(std::int64_t step, std::int64_t microbatch) {
  require(0 <= microbatch && microbatch < num_microbatches_, "microbatch ", microbatch, " of ", num_microbatches_);
  std::unique_lock lock(mutex_);
  const Turn turn{step, microbatch};
  if (turn != next_taken_) {
    ++jumps_;
    ready_.clear();
    next_made_ = turn;
    changed_.notify_all();
  }
  // Even if the batch is an error: a retry starts with it again.
  next_taken_ = after(turn);
  changed_.wait(lock, [&] { return !ready_.empty(); });
  Made made = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  if (made.error) std::rethrow_exception(made.error);
  return std::move(made.batch);
}

void Prefetch::recycle(TokenBatch&& batch) {
  const std::scoped_lock lock(mutex_);
  if (spare_.size() < depth_) spare_.push_back(std::move(batch));
}

}  // namespace trireme::data
