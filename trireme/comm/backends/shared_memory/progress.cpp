#include "trireme/comm/backends/shared_memory/progress.hpp"

#include <algorithm>
#include <stdexcept>

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

/// Longer than a small collective call takes where every rank has a core, shorter than a time slice.
constexpr std::chrono::microseconds kSpin{30};

void relax_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Progress::~Progress() {
  {
    const std::scoped_lock lock(mutex_);
    ends_ = true;
  }
  has_work_.notify_all();
  bell().ring();
  if (background_.joinable()) background_.join();
}

void Progress::add(Movable& group) {
  const std::scoped_lock lock(mutex_);
  groups_.push_back(&group);
}

void Progress::remove(Movable& group) {
  const std::scoped_lock lock(mutex_);
  std::erase(groups_, &group);
}

void Progress::move_in_background() {
  if (!background_.joinable()) background_ = std::thread([this] { run_in_background(); });
}

void Progress::run_in_background() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    const std::uint32_t seen = bell().rings.load();
    const bool moved = advance_all();
    if (std::ranges::none_of(groups_, [](const Movable* group) { return group->has_calls(); })) {
      has_work_.wait(lock);
      continue;
    }
    lock.unlock();
    if (moved)
      std::this_thread::yield();
    else
      bell().sleep(seen, kLookAtPeers);
    lock.lock();
  }
}

bool Progress::advance_all() {
  bool moved = false;
  for (Movable* group : groups_) moved = group->advance() || moved;
  return moved;
}

void Progress::start(const std::function<void()>& start) {
  const std::scoped_lock lock(mutex_);
  start();
  while (advance_all()) {
  }
  has_work_.notify_all();
}

bool Progress::is_done(Movable& group, const std::function<bool()>& done) {
  const std::scoped_lock lock(mutex_);
  while (advance_all()) {
  }
  if (done()) return true;
  group.look_at_peers();
  return group.error() != nullptr;
}

bool Progress::rings_soon(std::uint32_t seen) const {
  if (!spins_) return false;
  const auto end = Clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (bell().rings.load(std::memory_order_relaxed) != seen) return true;
      relax_core();
    }
  } while (Clock::now() < end);
  return false;
}

void Progress::wait(Movable& group, const std::function<bool()>& done, std::chrono::nanoseconds limit) {
  std::unique_lock lock(mutex_);
  const auto deadline = Clock::now() + limit;
  while (true) {
    const std::uint32_t seen = bell().rings.load();
    const bool moved = advance_all();
    if (done()) return;
    group.look_at_peers();
    if (group.error() != nullptr) std::rethrow_exception(group.error());
    const auto now = Clock::now();
    if (now >= deadline) throw std::runtime_error("timed out");
    lock.unlock();  // in each turn: other threads of the rank start calls, too
    if (!moved && !rings_soon(seen))
      bell().sleep(seen, std::min<std::chrono::nanoseconds>(deadline - now, kLookAtPeers));
    lock.lock();
  }
}

}  // namespace trireme
