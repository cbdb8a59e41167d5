#pragma once
// Who listens on a port of this host, for messages.
#include <string>

namespace trireme {

/// "python3 (pid 4711)"; "another process" when somebody listens and it may not be known who; empty when nobody does.
std::string port_owner(int port);

/// What stands before the first line break: errors of libtorch end in a trace.
std::string first_line(const std::string& words);

}  // namespace trireme
