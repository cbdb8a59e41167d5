#pragma once
// The ranks of this host as seen from one of them, and the groups that they make over shared memory.
#include <map>
#include <memory>
#include <optional>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/comm/backends/shared_memory/shared_memory_group.hpp"

namespace trireme {

// Note [Meeting]
// Every rank says in the store where it runs: the boot id of the host, its PID and network namespaces (containers with
// addresses of their own are hosts of their own), its process, and the descriptor of its bell. A group whose members
// say the same host and namespaces tries: its first rank makes the memory, the others open it through /proc, and tell
// whether they could (a sandbox, or another user, may be in the way). If all could, the group uses it; if not, all of
// them use Gloo. Nothing is left behind in /dev/shm: the memory has no name and ends with the processes, and the size
// of /dev/shm does not limit it.

class SharedMemoryHost {
 public:
  /// Called by all ranks, like all that follows by all ranks of a group. `shares`: false if this rank uses Gloo; it
  /// tells the others. `spins`: Progress.
  SharedMemoryHost(c10::intrusive_ptr<c10d::Store> store, int rank, bool shares, bool spins);

  /// nullptr if the members cannot share memory: all of them get that answer. `store`: of this group alone.
  std::unique_ptr<Group> connect(const Membership& members, c10d::Store& store,
                                 const std::shared_ptr<FlightRecorder>& recorder, const CommOptions& options,
                                 const std::shared_ptr<Watchdog>& watchdog);
  /// This rank also has groups that wait elsewhere: Note [Progress].
  void move_in_background() {
    if (progress_) progress_->move_in_background();
  }

 private:
  struct Place {
    std::string host;  // with its namespaces; a word of its own for a rank that shares nothing
    int pid = 0, bell_fd = -1;
    std::uint64_t mark[2] = {};  // BellPage
  };
  const Place& place_of(int rank);
  std::shared_ptr<SharedMemoryPeer> peer(int rank);
  std::optional<GroupMemory> memory_of(const Membership& members, c10d::Store& store);

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  std::shared_ptr<Progress> progress_{};  // none: this rank shares nothing
  std::map<int, Place> places_;
  std::map<int, std::shared_ptr<SharedMemoryPeer>> peers_;
};

}  // namespace trireme
