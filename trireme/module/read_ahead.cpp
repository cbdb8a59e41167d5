#include "trireme/module/read_ahead.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/Context.h>
#include <ATen/ThreadLocalState.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace trireme {
namespace {

/// The GPU and the stream of the thread that makes it, for another one: new threads begin on the first GPU.
class StreamOfThread {
 public:
  StreamOfThread() {
    if (!at::hasCUDA()) return;
    const c10::impl::VirtualGuardImpl gpus(at::kCUDA);
    stream_ = gpus.getStream(gpus.getDevice());
  }
  void use() const {
    if (!stream_) return;
    const c10::impl::VirtualGuardImpl gpus(at::kCUDA);
    gpus.setDevice(stream_->device());
    gpus.exchangeStream(*stream_);
  }

 private:
  std::optional<c10::Stream> stream_;
};

}  // namespace

ReadAhead::ReadAhead(Read read, std::int64_t first, std::int64_t end, std::int64_t ahead)
    : read_(std::move(read)), end_(end), ahead_(ahead), next_(first), taken_(first) {
  thread_ = std::thread([this, state = at::ThreadLocalState(), stream = StreamOfThread()] {
    const at::ThreadLocalStateGuard as_the_maker(state);
    stream.use();
    run();
  });
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ReadAhead::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || next_ >= end_ || next_ < taken_ + ahead_; });
    if (ends_ || next_ >= end_) return;
    const std::int64_t step = next_++;
    lock.unlock();
    Batch batch;
    try {
      batch.samples = read_(step);
    } catch (...) {
      batch.failure = std::current_exception();
    }
    lock.lock();
    if (step + 1 >= taken_) ready_.emplace(step, std::move(batch));  // else it was left out meanwhile
    changed_.notify_all();
  }
}

Samples ReadAhead::take(std::int64_t step) {
  std::unique_lock lock(mutex_);
  if (step < taken_ || step >= end_) {
    lock.unlock();
    return read_(step);
  }
  taken_ = step + 1;
  next_ = std::max(next_, step);
  ready_.erase(ready_.begin(), ready_.lower_bound(step));
  changed_.notify_all();
  changed_.wait(lock, [&] { return ready_.contains(step); });
  const Batch batch = std::move(ready_.extract(step).mapped());
  lock.unlock();
  if (batch.failure) std::rethrow_exception(batch.failure);
  return batch.samples;
}

}  // namespace trireme
