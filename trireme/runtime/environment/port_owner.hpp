#pragma once
// Finds the process that listens on a port of this host, for error messages.
#include <string>

namespace trireme {

/// "python3 (pid 4711)"; "another process" if the listener cannot be identified; empty if there is none.
std::string port_owner(int port);

/// The text before the first line break: libtorch's errors end in a stack trace.
std::string first_line(const std::string& words);

}  // namespace trireme
