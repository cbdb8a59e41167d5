#pragma once
// A process that outlives its launcher by a second, to end what the launcher cannot end any more.
#include <sys/types.h>

#include "trireme/runtime/launcher/owned_fd.hpp"

namespace trireme::launcher {

// Note [OrphanReaper]
// When a launcher is killed, its ranks are told by the kernel (PR_SET_PDEATHSIG) and by their lifelines. Neither
// reaches a program that knows nothing of us and runs below a wrapper script. So a small process of its own, out of
// reach of a signal to our group, waits for the end of a pipe from us and then kills the process groups of the ranks
// that still run.
class OrphanReaper {
 public:
  OrphanReaper();
  ~OrphanReaper();
  OrphanReaper(const OrphanReaper&) = delete;
  OrphanReaper& operator=(const OrphanReaper&) = delete;

  void watch(pid_t group) { tell(group); }
  /// Before the group's number can be another's.
  void forget(pid_t group) { tell(-group); }

 private:
  void tell(pid_t word);

  OwnedFd requests_{};
  pid_t pid_ = -1;  // -1: could not be started; the ranks have the other two ways
};

}  // namespace trireme::launcher
