#pragma once
// A helper process that outlives a killed launcher by a second and kills the remaining ranks.
#include <sys/types.h>

#include "trireme/base/owned_fd.hpp"

namespace trireme::launcher {

// Note [OrphanReaper]
// When a launcher is killed, its ranks are notified by the kernel (PR_SET_PDEATHSIG) and by their lifelines. Neither
// reaches a program that does not use Trireme and runs under a wrapper script. So a small separate process, outside our
// process group and its signals, waits for EOF on a pipe from us and then kills the process groups of the ranks that
// are still running.
class OrphanReaper {
 public:
  OrphanReaper();
  ~OrphanReaper();
  OrphanReaper(const OrphanReaper&) = delete;
  OrphanReaper& operator=(const OrphanReaper&) = delete;

  void watch(pid_t group) { tell(group); }
  /// Must be called before the process group id can be reused.
  void forget(pid_t group) { tell(-group); }

 private:
  void tell(pid_t word);

  OwnedFd requests_{};
  pid_t pid_ = -1;  // -1: could not be started; the other two mechanisms remain
};

}  // namespace trireme::launcher
