#include "trireme/runtime/environment/own_address.hpp"

#include <memory>

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "trireme/base/error.hpp"
#include "trireme/base/owned_fd.hpp"

namespace trireme {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kSomewhereElse = "192.0.2.1";  // of no host (RFC 5737): only the default route leads there

std::string digits_of(const sockaddr* address, socklen_t size) {
  char digits[NI_MAXHOST];
  return ::getnameinfo(address, size, digits, sizeof digits, nullptr, 0, NI_NUMERICHOST) == 0 ? digits : "";
}

/// Our end of the route to `host`; "" if there is none.
std::string address_towards(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const OwnedFd fd(::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    if (fd && ::connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0)
      return digits_of(reinterpret_cast<const sockaddr*>(&own), size);
  }
  return "";
}

/// The first address of an interface that is up and leads to other hosts, IPv4 before IPv6; "" if there is none.
std::string address_of_an_interface() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(found, &::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* at = found; at != nullptr; at = at->ifa_next) {
      if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != family) continue;
      if ((at->ifa_flags & IFF_UP) == 0 || (at->ifa_flags & IFF_LOOPBACK) != 0) continue;
      if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr))
        continue;
      return digits_of(at->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    }
  return "";
}

bool is_loopback_address(const std::string& digits) {
  return digits.starts_with("127.") || digits == "::1" || digits.starts_with("::ffff:127.");
}

}  // namespace

std::string own_address(const Environment& env) {
  const bool one_host = env.master_addr.empty() ? env.local_world_size == env.world_size : env.num_nodes == 1;
  // Who names a loopback address as that of all nodes has them on one host.
  if (one_host || env.master_addr == "localhost" || is_loopback_address(env.master_addr)) return kLoopback;
  // The host of the store is reached through its loopback interface where it is this one: Debian and Ubuntu resolve a
  // host's own name to 127.0.1.1. Nobody on another host could use that.
  std::string address = env.master_addr.empty() ? "" : address_towards(env.master_addr, env.master_port);
  if (address.empty() || is_loopback_address(address)) address = address_towards(kSomewhereElse, 9);
  if (address.empty() || is_loopback_address(address)) address = address_of_an_interface();
  require<ConfigError>(!address.empty(), "rank ", env.rank, " of ", env.world_size,
                       ": this host has no address that the ranks of other hosts could reach\n  the ranks meet ",
                       env.master_addr.empty()
                           ? text("in the file ", env.store_file, ", which contains no network address")
                           : text("at ", env.master_addr, ":", env.master_port),
                       "\n  fix: GLOO_SOCKET_IFNAME, or --master HOST:PORT with an address that all hosts reach");
  return address;
}

}  // namespace trireme
