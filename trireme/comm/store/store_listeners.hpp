#pragma once
// The sockets that a store listens on.
#include <string>
#include <vector>

#include "trireme/base/owned_fd.hpp"

namespace trireme {

/// Listeners on the addresses of `name` that this host has; none if it has none of them, or if a name other than
/// "localhost" stands for loopback only: the hosts file of one host often says so of its own name. std::system_error if
/// the port cannot be used.
std::vector<OwnedFd> listeners_of(const std::string& name, int port);

/// On all addresses of this host, IPv6 and IPv4; none, with errno, if the port cannot be used.
OwnedFd listener_everywhere(int port);

int port_of(int listener);
bool is_on_loopback(int listener);

}  // namespace trireme
