#pragma once
// How processes start: what every program does first, and when a process began.
#include <string>

#include <sys/types.h>

namespace trireme {

/// - Opens /dev/null where standard input, output or error is closed: the next file or socket would get that number,
///   and be read from or written to as if it were.
/// - Ignores SIGXFSZ: a file that grows beyond `ulimit -f` is then a write error that can be told, not a silent death.
/// - Keeps oneDNN from writing /tmp/perf-PID.map for each process, unless a variable asks for it.
/// To be called in main(), before there are threads. rank_main() calls it.
void prepare_process();

/// Writing to a connection or pipe that is closed at the other end becomes an error of that write, with a message,
/// instead of a silent death by SIGPIPE. A handler that the program has set stays.
void ignore_broken_pipes();

/// When a process was started, in ticks since the boot: with its pid that names one process. "" if there is none, or
/// only a zombie, which does nothing any more.
std::string process_start_ticks(pid_t pid);

}  // namespace trireme
