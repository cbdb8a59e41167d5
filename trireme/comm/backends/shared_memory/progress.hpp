#pragma once
// Moves the data of all groups of a rank over shared memory, in the threads that wait for it.
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "trireme/base/shared_memory.hpp"
#include "trireme/comm/backends/shared_memory/doorbell.hpp"

namespace trireme {

// Note [Progress]
// A call writes what fits into its rings when it starts; the rest moves whenever a thread of this rank starts a call,
// waits for one, or asks whether one is done. A wait moves the calls of all groups of the rank: two ranks that wait for
// each other in different groups both go on. When nothing can move, the thread sleeps at the rank's doorbell, which is
// rung by those that write to it, or that have read what it wants to overwrite.
// A rank that also has groups over Gloo waits there, too, where it moves nothing. Only then a thread of its own helps,
// as long as calls are in progress.

/// The calls of one group that are in progress. After an error the group makes none.
class Movable {
 public:
  /// Moves what can be moved without waiting; true if anything moved. Errors are kept.
  virtual bool advance() = 0;
  virtual bool has_calls() const = 0;
  /// Keeps an error if a call cannot go on without a rank that has ended. Asked in each turn; looks from time to time.
  virtual void look_at_peers() = 0;
  virtual std::exception_ptr error() const = 0;

 protected:
  ~Movable() = default;
};

class Progress {
 public:
  /// Between two looks at whether the peers still run: what ends without a word rings no bell.
  static constexpr std::chrono::milliseconds kLookAtPeers{20};

  /// `bell`: of this rank. `spins`: whether a thread that waits may keep its core for a moment before it sleeps.
  Progress(SharedMemory bell, bool spins) : memory_(std::move(bell)), spins_(spins) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void add(Movable& group);
  void remove(Movable& group);
  /// From now on a thread moves data while the others do something else.
  void move_in_background();

  /// `start` adds calls to a group; then everything moves as far as it can.
  void start(const std::function<void()>& start);
  /// Also true if the group has failed: then wait() throws.
  bool is_done(Movable& group, const std::function<bool()>& done);
  /// Throws the group's error, or std::runtime_error after `limit`.
  void wait(Movable& group, const std::function<bool()>& done, std::chrono::nanoseconds limit);

 private:
  Doorbell& bell() const { return *reinterpret_cast<Doorbell*>(memory_.data()); }
  bool advance_all();
  bool rings_soon(std::uint32_t seen) const;
  void run_in_background();

  const SharedMemory memory_;
  const bool spins_;
  std::mutex mutex_;
  std::vector<Movable*> groups_;
  bool ends_ = false;
  std::condition_variable has_work_;
  std::thread background_;
};

}  // namespace trireme
