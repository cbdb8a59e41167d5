#include "trireme/comm/backends/shared_memory/doorbell.hpp"

#include <climits>
#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace trireme {

// Either the one who rings sees the sleeper, or the sleeper sees the new number: both orders are sequentially
// consistent.
void Doorbell::ring() {
  rings.fetch_add(1);
  if (sleepers.load() > 0) ::syscall(SYS_futex, &rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Doorbell::sleep(std::uint32_t seen, std::chrono::nanoseconds at_most) {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec limit{.tv_sec = whole.count(), .tv_nsec = (at_most - whole).count()};
  sleepers.fetch_add(1);
  if (rings.load() == seen) ::syscall(SYS_futex, &rings, FUTEX_WAIT, seen, &limit, nullptr, 0);
  sleepers.fetch_sub(1);
}

}  // namespace trireme
