#pragma once
// Ranks as threads of one process: the backend that unit tests run on (and gdb, ASan and TSan with them).
#include <functional>
#include <memory>
#include <type_traits>

#include "trireme/comm/world.hpp"

namespace trireme {

/// What the ranks of one ThreadWorld share; in thread_group.cpp.
class ThreadHall;

/// Reductions are done in rank order, so results are the same bits every time; mismatched calls are always found at
/// once.
class ThreadWorld final : public World {
 public:
  ThreadWorld(int rank, std::shared_ptr<ThreadHall> hall, CommOptions options);
  ~ThreadWorld() override;

 protected:
  std::unique_ptr<Group> connect(Membership members) override;

 private:
  std::shared_ptr<ThreadHall> hall_;
};

/// Runs `body` once for each rank, each in a thread, and throws the first failure again. When one fails, the others are
/// told at their next call, so that nobody waits for it.
void run_worlds(int size, const CommOptions& options, const std::function<void(World&)>& body);

/// The same; `body` takes the World, or a Group of all its ranks.
template <class Body>
void run_ranks(int size, Body body, const CommOptions& options = {}) {
  run_worlds(size, options, [&body, size](World& world) {
    if constexpr (std::is_invocable_v<Body, Group&>) {
      std::vector<int> all(static_cast<std::size_t>(size));
      for (int r = 0; r < size; ++r) all[static_cast<std::size_t>(r)] = r;
      const std::unique_ptr<Group> group = world.make_group("world", all);
      body(*group);
    } else {
      body(world);
    }
  });
}

}  // namespace trireme
