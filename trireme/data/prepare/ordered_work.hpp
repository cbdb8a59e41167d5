#pragma once
// Parallel pipeline: one reader, several workers, and a writer that keeps the input order; bounded memory, stops at the
// first error. Header only.
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"

namespace trireme::data {

template <class Item>
struct WorkStages {
  std::function<bool(Item&)> read;              // on its own thread; false at the end. Items are reused.
  std::function<void(Item&, int worker)> work;  // on the worker threads, concurrently
  std::function<void(Item&)> write;             // on the caller's thread, in input order
  std::function<std::size_t(const Item&)> bytes = [](const Item&) { return std::size_t{0}; };  // size as read
  std::function<bool()> stopped = [] { return false; };  // polled often, on the caller's thread
};

// Note [The first failure]: an exception from `read` or `work` stays with its item until that item would be written,
// and is rethrown by ordered_work() there. So of several errors the first in input order is reported, independent of
// thread timing.

/// Throws Interrupted if `stopped` returns true.
template <class Item>
class OrderedWork {
 public:
  OrderedWork(int workers, const WorkStages<Item>& steps)
      : steps_(steps), most_items_(2 * static_cast<std::size_t>(workers) + 2) {
    threads_.emplace_back([this] { read_all(); });
    for (int worker = 0; worker < workers; ++worker) threads_.emplace_back([this, worker] { work_on(worker); });
  }
  ~OrderedWork() {
    {
      const std::lock_guard lock(mutex_);
      abandoned_ = true;
    }
    changed_.notify_all();
    todo_.notify_all();
  }
  OrderedWork(const OrderedWork&) = delete;
  OrderedWork& operator=(const OrderedWork&) = delete;

  void write_all() {
    using namespace std::chrono_literals;
    std::unique_lock lock(mutex_);
    for (;;) {
      // A signal does not notify the condition variable: hence the short waits.
      changed_.wait_for(lock, 50ms, [&] { return row_.empty() ? ended_ : row_.front()->done; });
      if (steps_.stopped()) throw Interrupted("interrupted; nothing was written");
      if (row_.empty() ? !ended_ : !row_.front()->done) continue;
      if (row_.empty()) return;
      auto slot = std::move(row_.front());
      row_.pop_front();
      --next_;
      lock.unlock();
      if (slot->failure) std::rethrow_exception(slot->failure);
      steps_.write(slot->item);
      lock.lock();
      bytes_ -= slot->bytes;
      slot->done = false;
      spare_.push_back(std::move(slot));
      changed_.notify_all();
    }
  }

 private:
  struct Slot {
    Item item;
    std::size_t bytes = 0;
    bool done = false;
    std::exception_ptr failure;
  };
  static constexpr std::size_t kMostBytes = std::size_t{1} << 26;  // limit for queued items; a single one may exceed it

  void read_all() {
    std::size_t made = 0;
    for (;;) {
      std::unique_ptr<Slot> slot;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] {
          return abandoned_ || ((made < most_items_ || !spare_.empty()) && (bytes_ == 0 || bytes_ < kMostBytes));
        });
        if (abandoned_) return;
        if (!spare_.empty()) {
          slot = std::move(spare_.back());
          spare_.pop_back();
        }
      }
      if (!slot) {
        slot = std::make_unique<Slot>();
        ++made;
      }
      bool more = false;
      try {
        more = steps_.read(slot->item);
        slot->bytes = more ? steps_.bytes(slot->item) : 0;
      } catch (...) {
        slot->failure = std::current_exception();
        slot->done = true;
      }
      const std::lock_guard lock(mutex_);
      ended_ = !more;
      if (more || slot->failure) {
        bytes_ += slot->bytes;
        row_.push_back(std::move(slot));
      }
      todo_.notify_all();
      if (!ended_) continue;
      changed_.notify_all();
      return;
    }
  }

  void work_on(int worker) {
    std::unique_lock lock(mutex_);
    for (;;) {
      todo_.wait(lock, [&] { return abandoned_ || ended_ || next_ < static_cast<std::ptrdiff_t>(row_.size()); });
      if (abandoned_ || next_ >= static_cast<std::ptrdiff_t>(row_.size())) return;
      Slot& slot = *row_[static_cast<std::size_t>(next_++)];  // stays valid: only finished items are removed
      if (slot.failure) continue;
      lock.unlock();
      try {
        steps_.work(slot.item, worker);
      } catch (...) {
        slot.failure = std::current_exception();
      }
      lock.lock();
      slot.done = true;
      changed_.notify_all();
    }
  }

  const WorkStages<Item>& steps_;
  const std::size_t most_items_;

  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_, todo_;
  std::deque<std::unique_ptr<Slot>> row_;  // in input order
  std::ptrdiff_t next_ = 0;                // in row_: the first item not yet taken by a worker
  std::vector<std::unique_ptr<Slot>> spare_;
  std::size_t bytes_ = 0;
  bool ended_ = false, abandoned_ = false;

  std::vector<std::jthread> threads_;  // last: they use the other members, and are joined before these are destroyed
};

template <class Item>
void ordered_work(int workers, const WorkStages<Item>& steps) {
  OrderedWork<Item>(workers, steps).write_all();
}

/// 0: all cores.
inline int num_workers(int asked) {
  require<ConfigError>(asked >= 0 && asked <= 4096, "--workers ", asked, "; 1 to 4,096, or 0 for all cores");
  return asked > 0 ? asked : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace trireme::data
