#pragma once
// The address at which the other ranks of a job reach this host.
#include <string>

#include "trireme/runtime/environment/environment.hpp"

namespace trireme {

/// 127.0.0.1 if all ranks are on this host; else the address on the route to the master, or, where that is no other
/// host's, on the default route, or that of an interface. No packets are sent. ConfigError if this host has no address
/// that others could reach.
std::string own_address(const Environment& environment);

}  // namespace trireme
