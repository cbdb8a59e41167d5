#include "trireme/comm/store_timeout.hpp"

#include <charconv>
#include <filesystem>
#include <set>
#include <string>

#include <sys/socket.h>
#include <sys/time.h>

namespace trireme {
namespace {

/// The descriptors of this process that are connected sockets.
std::set<int> connections() {
  namespace fs = std::filesystem;
  std::set<int> found;
  std::error_code skip;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd", skip)) {
    const std::string name = entry.path().filename();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (fd >= 0 && getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
        (peer.ss_family == AF_INET || peer.ss_family == AF_INET6))
      found.insert(fd);
  }
  return found;
}

}  // namespace

c10::intrusive_ptr<c10d::Store> with_receive_timeout(double seconds,
                                                     const std::function<c10::intrusive_ptr<c10d::Store>()>& connect) {
  const std::set<int> before = connections();
  auto store = connect();
  // Another thread may have connected meanwhile: Gloo's sockets are non-blocking, so this does not affect them.
  for (const int fd : connections()) {
    if (before.contains(fd)) continue;
    timeval limit{};
    limit.tv_sec = static_cast<time_t>(seconds);
    limit.tv_usec = static_cast<suseconds_t>((seconds - static_cast<double>(limit.tv_sec)) * 1e6);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  return store;
}

}  // namespace trireme
