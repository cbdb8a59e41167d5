#include "trireme/comm/store/store_listeners.hpp"

#include <cerrno>
#include <cstdint>
#include <memory>
#include <system_error>
#include <utility>

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace trireme {
namespace {

OwnedFd listener_at(const sockaddr* address, socklen_t size) {
  OwnedFd fd(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1, off = 0;
  if (!fd) return fd;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->sa_family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(fd.get(), address, size) == 0 && ::listen(fd.get(), SOMAXCONN) == 0) return fd;
  const int error = errno;
  fd.reset();
  errno = error;
  return fd;
}

sockaddr_storage address_of(int fd) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size);
  return own;
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24 == 127;
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

}  // namespace

std::vector<OwnedFd> listeners_of(const std::string& name, int port) {
  std::vector<OwnedFd> listeners;
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  const std::string service = std::to_string(port);
  bool keep_loopback = ::getaddrinfo(name.c_str(), service.c_str(), &hints, &found) == 0 || name == "localhost";
  hints.ai_flags = 0;
  if (found == nullptr && ::getaddrinfo(name.c_str(), service.c_str(), &hints, &found) != 0) return listeners;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) keep_loopback |= !is_loopback(at->ai_addr);
  for (const addrinfo* at = found; at != nullptr && keep_loopback; at = at->ai_next) {
    OwnedFd fd = listener_at(at->ai_addr, at->ai_addrlen);
    if (fd)
      listeners.push_back(std::move(fd));
    else if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT)
      throw std::system_error(errno, std::generic_category(), "listen");
    if (!listeners.empty() && port == 0) break;  // another address would get another port
  }
  return listeners;
}

OwnedFd listener_everywhere(int port) {
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(static_cast<std::uint16_t>(port));
  OwnedFd fd = listener_at(reinterpret_cast<const sockaddr*>(&any6), sizeof any6);
  if (fd || errno != EAFNOSUPPORT) return fd;
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_port = any6.sin6_port;
  return listener_at(reinterpret_cast<const sockaddr*>(&any4), sizeof any4);
}

int port_of(int listener) {
  const sockaddr_storage own = address_of(listener);
  return ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(own).sin6_port
                                         : reinterpret_cast<const sockaddr_in&>(own).sin_port);
}

bool is_on_loopback(int listener) {
  const sockaddr_storage own = address_of(listener);
  return is_loopback(reinterpret_cast<const sockaddr*>(&own));
}

}  // namespace trireme
