#pragma once
// World with ranks as threads of one process: the backend of the unit tests (and for gdb, ASan and TSan).
#include <functional>
#include <memory>
#include <type_traits>

#include "trireme/comm/world.hpp"

namespace trireme {

/// State shared by the ranks of one ThreadWorld; in thread_group.cpp.
class ThreadHall;

/// Reductions are in rank order, so results are bitwise reproducible; mismatched calls are always detected immediately.
class ThreadWorld final : public World {
 public:
  ThreadWorld(int rank, std::shared_ptr<ThreadHall> hall, CommOptions options);
  ~ThreadWorld() override;

 protected:
  std::unique_ptr<Group> connect(Membership members) override;

 private:
  std::shared_ptr<ThreadHall> hall_;
};

/// Runs `body` once per rank, each in a thread, and rethrows the first exception. If one fails, the others throw at
/// their next call, so that none waits for it.
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
